"""Configs and partitions of topics through Admin clients: a diskless topic answers like a classic one."""

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
from tests.support.questions import ask
from tests.support.records import Sample, samples
from tests.support.topics import CLASSIC, DISKLESS, NOT_HEARD_OF, new_topic, offsets

ENABLE = "diskless.enable"
MIN_ISR = "min.insync.replicas"
CONFIGS = {"retention.ms": "3600000", "max.message.bytes": "50000", "min.insync.replicas": "1"}


@pytest.fixture
def topics(stack: Stack) -> tuple[str, str]:
    classic, diskless = (new_topic(stack, "configs", kind, configs=CONFIGS) for kind in (CLASSIC, DISKLESS))
    return classic, diskless


@pytest.fixture
def admin(stack: Stack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.bootstrap("rack-b")})


def outcome(call: Callable[[], Any]) -> str:
    """Return `done`, or the name of the error."""
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
        except KafkaException as error:  # brokers learn of a topic one after the other
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
    """Wait until both kinds have the same configs, except `diskless.enable` and `min.insync.replicas`.

    Brokers and proxies learn of changes within moments.
    """
    deadline = time.monotonic() + 20
    while True:
        classic, diskless = (described(admin, topic) for topic in topics)
        without_own(classic, diskless)
        if classic == diskless or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert classic == diskless


def without_own(
    classic: dict[str, tuple[str | None, str, bool]], diskless: dict[str, tuple[str | None, str, bool]]
) -> None:
    """Check and remove the configs that a diskless topic reports in its own way."""
    assert diskless.pop(ENABLE)[0] == "true"
    assert diskless.pop(MIN_ISR) == ("1", "DEFAULT_CONFIG", True)
    del classic[MIN_ISR]


def test_only_a_diskless_topic_has_a_latency_of_appends(
    stack: Stack, admin: AdminClient, topics: tuple[str, str]
) -> None:
    name, set_ = "diskless.append.latency.ms", AlterConfigOpType.SET
    assert [alter(admin, topic, name, "2000", set_) for topic in topics] == ["INVALID_CONFIG", "done"]
    assert alter(admin, topics[1], name, "60001", set_) == "INVALID_CONFIG"
    assert described(admin, topics[1])[name] == ("2000", "DYNAMIC_TOPIC_CONFIG", False)
    assert alter(admin, topics[1], name, None, AlterConfigOpType.DELETE) == "done"
    the_same(admin, topics)
    patient = new_topic(stack, "patient", DISKLESS, configs={name: "3000"})
    assert described(admin, patient)[name] == ("3000", "DYNAMIC_TOPIC_CONFIG", False)


def test_configs_are_described_and_changed_in_the_same_way(admin: AdminClient, topics: tuple[str, str]) -> None:
    the_same(admin, topics)
    set_, delete, append = AlterConfigOpType.SET, AlterConfigOpType.DELETE, AlterConfigOpType.APPEND
    subtract = AlterConfigOpType.SUBTRACT
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
        ("cleanup.policy", "compact", append, "done"),
        ("cleanup.policy", "delete", subtract, "done"),
        ("cleanup.policy", "never", set_, "INVALID_CONFIG"),
        ("cleanup.policy", "compact,compact", set_, "done"),
        ("cleanup.policy", "", set_, "done"),
        ("cleanup.policy", " compact, delete ", set_, "done"),
        ("delete.retention.ms", " 5", set_, "done"),
        ("delete.retention.ms", "-1", set_, "INVALID_CONFIG"),
        ("min.cleanable.dirty.ratio", "1", set_, "done"),
        ("min.cleanable.dirty.ratio", "0.00025", set_, "done"),
        ("min.cleanable.dirty.ratio", "1.5", set_, "INVALID_CONFIG"),
        ("min.compaction.lag.ms", "10", set_, "done"),
        ("max.compaction.lag.ms", "9", set_, "INVALID_CONFIG"),
        ("max.compaction.lag.ms", "10", set_, "done"),
        ("min.compaction.lag.ms", "11", set_, "INVALID_CONFIG"),
        ("min.compaction.lag.ms", None, delete, "done"),
        ("cleanup.policy", None, delete, "done"),
    ):
        assert [alter(admin, topic, name, value, operation) for topic in topics] == [expected] * 2, (name, value)
        the_same(admin, topics)


def test_every_proxy_applies_a_changed_config(stack: Stack, admin: AdminClient, topics: tuple[str, str]) -> None:
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
            assert time.monotonic() < deadline, f"the proxy of {rack} still takes what has become too large"
        assert "MSG_SIZE_TOO_LARGE" in refused


def test_diskless_enable_cannot_be_changed(admin: AdminClient, topics: tuple[str, str]) -> None:
    _, diskless = topics
    assert alter(admin, diskless, ENABLE, "false", AlterConfigOpType.SET) == "INVALID_CONFIG"
    assert alter(admin, diskless, ENABLE, None, AlterConfigOpType.DELETE) == "INVALID_CONFIG"
    assert alter(admin, diskless, ENABLE, "true", AlterConfigOpType.SET) == "done"
    assert described(admin, diskless)[ENABLE][0] == "true"


@pytest.mark.parametrize("api_key", ["AlterConfigs", "IncrementalAlterConfigs"])
def test_a_config_that_is_named_twice(stack: Stack, topics: tuple[str, str], api_key: str) -> None:
    key, version = {"AlterConfigs": (33, 2), "IncrementalAlterConfigs": (44, 1)}[api_key]

    def altered(address: str, topic: str, name: str, *values: str) -> tuple[int, str]:
        configs = [{"name": name, "config_operation": 0, "value": value} for value in values]
        resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
        (answer,) = ask(address, key, version, resources=[resource], validate_only=False)["responses"]
        return answer["error_code"], answer["error_message"]

    direct, proxied = stack.direct_bootstrap.split(",")[0], stack.bootstrap("rack-b")
    brokers_answer = altered(direct, topics[0], "retention.ms", "5000", "6000")
    for topic in topics:
        assert altered(proxied, topic, ENABLE, "true", "true") == brokers_answer
        assert altered(proxied, topic, ENABLE, "false", "true") == brokers_answer
        assert altered(proxied, topic, "retention.ms", "5000", "6000") == brokers_answer
    assert brokers_answer[0] == 42


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "", "never", "delete,compact,delete"])
def test_topics_are_created_with_every_cleanup_policy(stack: Stack, admin: AdminClient, policy: str) -> None:
    configs = {"cleanup.policy": policy, "min.cleanable.dirty.ratio": ".75", "delete.retention.ms": "0"}
    made: list[str] = []
    outcomes = [
        outcome(lambda: made.append(new_topic(stack, "policy", kind, configs=configs)))  # noqa: B023
        for kind in (CLASSIC, DISKLESS)
    ]
    if policy == "never":
        assert outcomes == ["INVALID_CONFIG"] * 2
    else:
        assert outcomes == ["done"] * 2
        the_same(admin, (made[0], made[1]))


def test_only_the_named_configs_are_deleted(stack: Stack) -> None:
    old = [Sample(b"key", b"value", (), 1_000)] * 3
    new = [Sample(b"key", b"value", (), int(time.time() * 1000))]
    limit = {"retention.ms": "60000"}
    policies = ("compact", "", "compact,delete")
    topics = [new_topic(stack, "kept", DISKLESS, configs=limit | {"cleanup.policy": one}) for one in policies]
    for topic in topics:
        produce_to(stack.bootstrap("rack-a"), topic, {0: old})
        produce_to(stack.bootstrap("rack-a"), topic, {0: new})
    deadline = time.monotonic() + 60
    while offsets(stack, topics[2]) != (3, 4):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [offsets(stack, topic) for topic in topics] == [(0, 4), (0, 4), (3, 4)]


def test_all_configs_of_a_topic_are_replaced(admin: AdminClient, topics: tuple[str, str]) -> None:
    for topic in topics:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.bytes": "5000000"})
        with pytest.warns(DeprecationWarning, match="incremental"):
            (answer,) = admin.alter_configs([resource]).values()
        answer.result(30)
    the_same(admin, topics)


def wait_for_partitions(stack: Stack, topic: str, count: int) -> None:
    """Wait for every broker and rack: producers give up at once on a partition that their broker does not know."""
    deadline = time.monotonic() + 60
    for address in (*stack.direct_bootstrap.split(","), *map(stack.bootstrap, stack.proxies)):
        # A new client asks the broker at its bootstrap address; later it asks any broker that it knows.
        while len(AdminClient({"bootstrap.servers": address}).list_topics(topic, 10).topics[topic].partitions) < count:
            assert time.monotonic() < deadline, address
            time.sleep(0.1)


def test_partitions_are_added_in_the_same_way(stack: Stack, admin: AdminClient, topics: tuple[str, str]) -> None:
    for count, expected in ((3, "done"), (2, "INVALID_PARTITIONS"), (5, "done")):
        for topic in topics:
            (answer,) = admin.create_partitions([NewPartitions(topic, count)]).values()
            assert outcome(lambda: answer.result(30)) == expected  # noqa: B023
    sent = {partition: samples(3 + partition, "none") for partition in range(5)}
    for topic in topics:
        wait_for_partitions(stack, topic, 5)
        produce_to(stack.bootstrap("rack-c"), topic, sent)
        kept = read_partitions(stack.bootstrap("rack-a"), topic, 5)
        assert [len(records) for records in kept] == [3, 4, 5, 6, 7]


def test_partitions_added_directly_on_the_brokers_soon_work(stack: Stack, topics: tuple[str, str]) -> None:
    _, diskless = topics
    direct = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    (answer,) = direct.create_partitions([NewPartitions(diskless, 3)]).values()
    answer.result(30)
    wait_for_partitions(stack, diskless, 3)
    produce_to(stack.bootstrap("rack-b"), diskless, {2: samples(4, "none")})
    assert len(read_partitions(stack.bootstrap("rack-c"), diskless, 3)[2]) == 4


def test_a_default_of_the_brokers_is_returned_in_its_unit(new_stack: Callable[..., Stack]) -> None:
    stack = new_stack(racks=("rack-a",), broker_properties={"log.retention.hours": "24", "message.max.bytes": "70000"})
    admin = AdminClient({"bootstrap.servers": stack.bootstrap("rack-a")})
    topics = [new_topic(stack, "defaults", kind) for kind in (CLASSIC, DISKLESS)]
    classic, diskless = (described(admin, topic) for topic in topics)
    without_own(classic, diskless)
    assert classic["retention.ms"][0] == str(24 * 3_600_000)
    assert classic == diskless
    sent = [Sample(None, b"x" * 60_000, (), int(time.time() * 1000))]
    too_large = [Sample(None, b"x" * 80_000, (), int(time.time() * 1000))]
    for topic in topics:
        assert produce_to(stack.bootstrap("rack-a"), topic, {0: sent}) == {0: [0]}
        with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
            produce_to(stack.bootstrap("rack-a"), topic, {0: too_large})
