"""Changes of a diskless topic's placeholder that somebody makes directly on the brokers."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from proxy.brokers.broker_metadata import ask_topics
from proxy.brokers.cluster import Cluster
from proxy.cli import app
from proxy.config import load_settings
from proxy.creation.placeholder import is_placeholder
from proxy.demo.stack import Stack
from proxy.housekeeping.stray import StrayRecords
from tests.support.confluent import produce, read
from tests.support.metrics import Metrics
from tests.support.records import Sample, samples, stored
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic, new_topic, offsets, replica_count
from tests.support.waiting import wait_for


def direct(stack: Stack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.direct_bootstrap})


def delete_directly(stack: Stack, topic: str) -> None:
    client = direct(stack)
    client.delete_topics([topic], request_timeout=30)[topic].result(40)


def topics_command(stack: Stack, *arguments: str) -> Any:
    """Return the output of `diskless-proxy topics`."""
    config = str(stack.config_path("rack-a"))
    done = CliRunner().invoke(app, ["topics", *arguments, "--json", "--config", config])
    assert done.exit_code == 0, f"{done.stderr}\n{done.exception!r}"
    return json.loads(done.stdout)["topics"]


def registered(stack: Stack) -> dict[str, Any]:
    """Return the diskless topics by name."""
    return {row["topic"]: row for row in topics_command(stack, "list", "--diskless")}


def described(stack: Stack, topic: str) -> Any:
    return topics_command(stack, "describe", topic)[0]


def is_empty_everywhere(stack: Stack, topic: str) -> bool:
    return all(offsets(stack, topic, rack=rack) == (0, 0) for rack in stack.proxies)


def objects(stack: Stack) -> set[Path]:
    return {path for path in (stack.directory / "wal").glob("??/*") if path.is_file()}


def test_placeholders_are_recognized_by_their_configs(stack: Stack) -> None:
    async def look(*names: str) -> list[bool | None]:
        cluster = Cluster(load_settings(stack.config_path("rack-a")))
        try:
            await cluster.refresh()
            return [await is_placeholder(cluster.service, name) for name in names]
        finally:
            cluster.service.close()

    classic, diskless = (new_topic(stack, "recognized", kind) for kind in (CLASSIC, DISKLESS))
    assert asyncio.run(look(diskless, classic, "missing-topic")) == [True, False, None]


def test_a_topic_deleted_on_the_brokers_is_deleted_with_all_its_data(stack: Stack) -> None:
    kept, gone = (new_topic(stack, label, DISKLESS, partitions=2) for label in ("kept-here", "deleted-there"))
    produce(stack.bootstrap("rack-a"), kept, samples(5, "kept"))
    before = objects(stack)
    for number in range(3):
        produce(stack.bootstrap("rack-a"), gone, samples(5, "gone"), number % 2)
    made = objects(stack) - before
    assert made
    delete_directly(stack, gone)
    wait_for(lambda: gone not in registered(stack), "the topic stayed in the registry")
    wait_for(lambda: not objects(stack) & made, "its objects stayed")
    assert registered(stack)[kept]["state"] == "live"
    create_topic(stack, gone, DISKLESS)
    assert offsets(stack, gone) == (0, 0)
    produce(stack.bootstrap("rack-b"), gone, samples(2, "again"))
    assert offsets(stack, gone) == (0, 2)
    assert offsets(stack, kept) == (0, 5)


def test_a_topic_recreated_on_the_brokers_is_classic(stack: Stack) -> None:
    topic = new_topic(stack, "recreated", DISKLESS)
    produce(stack.bootstrap("rack-a"), topic, samples(5, "old"))
    old_id = registered(stack)[topic]["topic_id"]
    delete_directly(stack, topic)
    client = direct(stack)

    def made() -> bool:
        (result,) = client.create_topics([NewTopic(topic, 1, replica_count(stack))], request_timeout=30).values()
        return result.exception(40) is None

    wait_for(made, "the brokers did not recreate it")
    wait_for(lambda: topic not in registered(stack), "the old one stayed in the registry")
    assert old_id
    sent = samples(4, "new")
    wait_for(lambda: is_empty_everywhere(stack, topic), "the new one is not seen")
    produce(stack.bootstrap("rack-b"), topic, sent)
    assert read(stack.direct_bootstrap, topic) == stored(sent)
    assert read(stack.bootstrap("rack-c"), topic) == stored(sent)
    delete_topic(stack, topic)


def test_a_topic_deleted_while_no_proxy_ran_is_deleted_later(stack: Stack) -> None:
    kept, gone = (new_topic(stack, label, DISKLESS) for label in ("kept-meanwhile", "deleted-meanwhile"))
    for topic in (kept, gone):
        produce(stack.bootstrap("rack-a"), topic, samples(3, "meanwhile"))
    for rack in stack.proxies:
        stack.kill_proxy(rack)
    delete_directly(stack, gone)
    stack.heal()
    wait_for(lambda: gone not in registered(stack), "the topic stayed in the registry")
    assert offsets(stack, kept) == (0, 3)


def test_records_produced_to_the_brokers_are_counted_and_not_served(stack: Stack) -> None:
    topic, untouched = (new_topic(stack, label, DISKLESS) for label in ("stray", "no-stray"))
    sent = samples(3, "right way")
    produce(stack.bootstrap("rack-a"), topic, sent)
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        produce(stack.direct_bootstrap, topic, [Sample(None, b"larger than a marker" * 5, (), 1_000)])
    for _ in range(4):
        produce(stack.direct_bootstrap, topic, [Sample(None, b"past the proxies", (), 1_000)])

    def counted() -> float:
        return max(Metrics(stack, rack).value("stray_records", topic=topic) for rack in stack.proxies)

    wait_for(lambda: counted() == 4, "the records were not counted")
    assert sum(Metrics(stack, rack).value("stray_records", topic=untouched) for rack in stack.proxies) == 0
    assert any(topic in line for line in alerts(stack))
    assert described(stack, topic)["stray_records"] == 4
    assert described(stack, untouched)["stray_records"] == 0
    for rack in stack.proxies:
        assert read(stack.bootstrap(rack), topic) == stored(sent)
    more = samples(1, "after")
    assert produce(stack.bootstrap("rack-b"), topic, more) == [3]
    # The documented remedy: delete them on the brokers.
    client = direct(stack)
    (done,) = client.delete_records([TopicPartition(topic, 0, 4)], request_timeout=30).values()
    done.result(40)
    wait_for(lambda: counted() == 0, "the records are still counted")


def alerts(stack: Stack) -> list[str]:
    """Return lines of the proxies' logs that report stray records."""
    logs = [stack.log_tail(name, 1000) for name in stack.processes if name.startswith("proxy-")]
    return [line for log in logs for line in log.splitlines() if "stray_records" in line]


def test_a_marker_in_a_placeholder_topic_is_not_a_stray_record(stack: Stack) -> None:
    """A transaction writes to a classic topic that no proxy treats as diskless; its markers are not counted as
    records."""
    topic = new_topic(stack, "markers", CLASSIC)
    producer = Producer({"bootstrap.servers": stack.direct_bootstrap, "transactional.id": f"tx-{uuid.uuid4()}"})
    producer.init_transactions(30)
    for number in range(3):
        producer.begin_transaction()
        for _ in range(number + 1):
            producer.produce(topic, b"value", partition=0)
        producer.commit_transaction(30)

    async def count() -> dict[str, int]:
        cluster = Cluster(load_settings(stack.config_path("rack-a")))
        try:
            await cluster.refresh()
            known = await ask_topics(cluster.service, None)
            (topic_id,) = [one.topic_id for one in known.topics.values() if one.name == topic]
            stray = StrayRecords(cluster)
            counts = await stray.look([topic_id])
            assert await stray.look([topic_id]) == counts, "nothing is counted twice"
            return counts
        finally:
            cluster.service.close()

    # A commit is answered before its marker is written.
    wait_for(lambda: offsets(stack, topic) == (0, 1 + 2 + 3 + 3), "the last marker did not come")
    assert asyncio.run(count()) == {topic: 1 + 2 + 3}


def test_a_topic_with_a_diskless_name_that_is_created_at_the_brokers_is_reported(stack: Stack) -> None:
    """Terraform or a Topic Operator that is connected to the brokers does this."""
    name = f"diskless.past-{uuid.uuid4().hex[:6]}"
    compacted = f"diskless.past-compacted-{uuid.uuid4().hex[:6]}"
    replicas = replica_count(stack)
    client = direct(stack)
    client.create_topics([NewTopic(name, 1, replicas)])[name].result(40)
    client.create_topics([NewTopic(compacted, 1, replicas, config={"cleanup.policy": "compact"})])[compacted].result(40)
    through_proxy = f"diskless.through-{uuid.uuid4().hex[:6]}"
    create_topic(stack, through_proxy, CLASSIC)

    def reported() -> float:
        """Return the sum over the proxies: only the one that keeps house reports any."""
        return sum(Metrics(stack, rack).value("classic_topics_named_diskless") for rack in stack.proxies)

    try:
        wait_for(lambda: reported() == 1, "one topic is reported")
        states = {row["topic"]: (row["kind"], row["state"]) for row in topics_command(stack, "list")}
        assert states[name] == ("classic", "live, with a diskless name")
        assert states[compacted] == ("classic", "live")
        assert states[through_proxy] == ("diskless", "live")
        config = str(stack.config_path("rack-a"))
        printed = CliRunner().invoke(app, ["topics", "list", "--config", config]).stdout
        assert "1 classic topic has a name that default_diskless_topics matches: recreate the topic" in printed
    finally:
        for topic in (name, compacted):
            delete_directly(stack, topic)
        delete_topic(stack, through_proxy)
    wait_for(lambda: reported() == 0, "nothing is reported after its deletion")
