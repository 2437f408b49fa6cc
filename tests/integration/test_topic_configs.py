"""Configs and partitions of topics, by Admin clients: what a diskless topic answers is what a classic one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)

from proxy.demo.stack import Stack
from tests.support.confluent import produce_to, read_partitions
from tests.support.records import Sample, samples
from tests.support.topics import CLASSIC, DISKLESS, NOT_HEARD_OF, new_topic

ENABLE = "diskless.enable"
CONFIGS = {"retention.ms": "3600000", "max.message.bytes": "50000", "min.insync.replicas": "1"}


@pytest.fixture
def topics(stack: Stack) -> tuple[str, str]:
    classic, diskless = (new_topic(stack, "configs", kind, configs=CONFIGS) for kind in (CLASSIC, DISKLESS))
    return classic, diskless


@pytest.fixture
def admin(stack: Stack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.bootstrap("rack-b")})


def outcome(call: Callable[[], Any]) -> str:
    """`done`, or the name of the error."""
    try:
        call()
    except KafkaException as error:
        return str(error.args[0].name())
    return "done"


def described(admin: AdminClient, topic: str) -> dict[str, tuple[str | None, str, bool]]:
    deadline = time.monotonic() + 30
    while True:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        try:
            found = answer.result(30)
            break
        except KafkaException as error:  # brokers hear of a topic one after the other
            if error.args[0].code() not in NOT_HEARD_OF or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    return {name: (one.value, ConfigSource(one.source).name, one.is_default) for name, one in found.items()}


def alter(admin: AdminClient, topic: str, name: str, value: str | None, operation: AlterConfigOpType) -> str:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    (answer,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    return outcome(lambda: answer.result(30))


def the_same(admin: AdminClient, topics: tuple[str, str]) -> None:
    """Both kinds tell the same configs, but for `diskless.enable`; brokers and proxies hear of changes in moments."""
    deadline = time.monotonic() + 20
    while True:
        classic, diskless = (described(admin, topic) for topic in topics)
        assert diskless.pop(ENABLE)[0] == "true"
        if classic == diskless or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert classic == diskless


def test_configs_are_told_and_changed_alike(admin: AdminClient, topics: tuple[str, str]) -> None:
    the_same(admin, topics)
    set_, delete, append = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
    for name, value, operation, expected in (
        ("retention.ms", "7200000", set_, "done"),
        ("retention.bytes", "1000000", set_, "done"),
        ("min.insync.replicas", "2", set_, "done"),
        ("retention.ms", None, delete, "done"),
        ("max.message.bytes", "many", set_, "INVALID_CONFIG"),
        ("max.message.bytes", "60000", set_, "done"),
        ("no.such.config", "1", set_, "INVALID_CONFIG"),
        ("cleanup.policy", "delete", append, "done"),
        ("retention.bytes", None, delete, "done"),
    ):
        assert [alter(admin, topic, name, value, operation) for topic in topics] == [expected] * 2, (name, value)
        the_same(admin, topics)


def test_a_changed_config_is_obeyed_by_every_proxy(stack: Stack, admin: AdminClient, topics: tuple[str, str]) -> None:
    _, diskless = topics
    assert alter(admin, diskless, "max.message.bytes", "100", AlterConfigOpType.SET) == "done"
    deadline = time.monotonic() + 20
    for rack in stack.proxies:
        while True:
            try:
                produce_to(stack.bootstrap(rack), diskless, {0: samples(5, "none")}, batch_num_messages=1)
            except AssertionError as error:
                refused = str(error)
                break
            assert time.monotonic() < deadline
        assert "MSG_SIZE_TOO_LARGE" in refused


def test_diskless_enable_is_for_good(admin: AdminClient, topics: tuple[str, str]) -> None:
    _, diskless = topics
    assert alter(admin, diskless, ENABLE, "false", AlterConfigOpType.SET) == "INVALID_CONFIG"
    assert alter(admin, diskless, ENABLE, None, AlterConfigOpType.DELETE) == "INVALID_CONFIG"
    assert alter(admin, diskless, ENABLE, "true", AlterConfigOpType.SET) == "done"
    assert alter(admin, diskless, "cleanup.policy", "compact", AlterConfigOpType.SET) == "INVALID_CONFIG"
    assert described(admin, diskless)[ENABLE][0] == "true"


def test_all_configs_of_a_topic_are_replaced(admin: AdminClient, topics: tuple[str, str]) -> None:
    for topic in topics:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "5000000"})
        with pytest.warns(DeprecationWarning, match="incremental"):
            (answer,) = admin.alter_configs([resource]).values()
        answer.result(30)
    the_same(admin, topics)


def test_partitions_are_added_alike(stack: Stack, admin: AdminClient, topics: tuple[str, str]) -> None:
    for count, expected in ((3, "done"), (2, "INVALID_PARTITIONS"), (5, "done")):
        for topic in topics:
            (answer,) = admin.create_partitions([NewPartitions(topic, count)]).values()
            assert outcome(lambda: answer.result(30)) == expected  # noqa: B023
    sent = {partition: samples(3 + partition, "none") for partition in range(5)}
    for topic in topics:
        deadline = time.monotonic() + 30
        while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        produce_to(stack.bootstrap("rack-c"), topic, sent)
        kept = read_partitions(stack.bootstrap("rack-a"), topic, 5)
        assert [len(records) for records in kept] == [3, 4, 5, 6, 7]


def test_partitions_that_are_added_past_the_proxies_are_there_soon(stack: Stack, topics: tuple[str, str]) -> None:
    _, diskless = topics
    direct = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    (answer,) = direct.create_partitions([NewPartitions(diskless, 3)]).values()
    answer.result(30)
    deadline = time.monotonic() + 30
    while len(direct.list_topics(diskless, timeout=10).topics[diskless].partitions) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    produce_to(stack.bootstrap("rack-b"), diskless, {2: samples(4, "none")})
    assert len(read_partitions(stack.bootstrap("rack-c"), diskless, 3)[2]) == 4


def test_a_default_of_the_brokers_is_told_in_its_unit(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(racks=("rack-a",), broker_properties={"log.retention.hours": "24", "message.max.bytes": "70000"})
    admin = AdminClient({"bootstrap.servers": stack.bootstrap("rack-a")})
    topics = [new_topic(stack, "defaults", kind) for kind in (CLASSIC, DISKLESS)]
    classic, diskless = (described(admin, topic) for topic in topics)
    assert diskless.pop(ENABLE)[0] == "true"
    assert classic["retention.ms"][0] == str(24 * 3_600_000)
    assert classic == diskless
    sent = [Sample(None, b"x" * 60_000, (), int(time.time() * 1000))]
    too_large = [Sample(None, b"x" * 80_000, (), int(time.time() * 1000))]
    for topic in topics:
        assert produce_to(stack.bootstrap("rack-a"), topic, {0: sent}) == {0: [0]}
        with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
            produce_to(stack.bootstrap("rack-a"), topic, {0: too_large})
