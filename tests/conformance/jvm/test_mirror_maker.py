"""MirrorMaker 2 copies a classic topic into a diskless one, groups' offsets too: the way to migrate."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce_to, read_partitions
from tests.support.java_tools import java_program
from tests.support.metrics import Metrics
from tests.support.records import samples
from tests.support.topics import CLASSIC, new_topic

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
ALIAS = "diskless"
"""MirrorMaker puts it before a topic's name, and topics of such names are diskless here."""
PARTITIONS, RECORDS, READ = 3, 40, 25
READS_IN, WRITES_IN = "rack-b", "rack-c"
TIMEOUT_SECONDS = 40
ATTEMPTS = 3
"""MirrorMaker translates no offset from before its checkpoint task began: where that comes late, it never does."""


def test_a_classic_topic_moves(stack: Stack, tmp_path: Path) -> None:
    """MirrorMaker appends `|…` to the client ID: the rack in it counts all the same."""
    before = (requests(stack, READS_IN, "Fetch"), requests(stack, WRITES_IN, "Produce"))
    moved = (move(stack, tmp_path / str(number)) for number in range(ATTEMPTS))
    topic = next((one for one in moved if one), "")
    assert topic, f"no offsets of the group in the copy within {TIMEOUT_SECONDS} s, {ATTEMPTS} times"
    mirrored = f"{ALIAS}.{topic}"
    # Diskless: none of its records is on the brokers.
    assert read_partitions(stack.direct_bootstrap, mirrored, PARTITIONS) == [[]] * PARTITIONS
    assert requests(stack, READS_IN, "Fetch") > before[0]
    assert requests(stack, WRITES_IN, "Produce") > before[1]
    assert read_partitions(stack.bootstrap("rack-c"), mirrored, PARTITIONS) == read_partitions(
        stack.direct_bootstrap, topic, PARTITIONS
    )


def move(stack: Stack, directory: Path) -> str:
    """The name of a topic that was moved with its group's offsets; empty where those did not come."""
    topic = new_topic(stack, "moving", CLASSIC, PARTITIONS)
    group, bootstrap = f"{topic}-readers", stack.bootstrap("rack-a")
    produce_to(bootstrap, topic, {partition: samples(RECORDS, f"{partition}") for partition in range(PARTITIONS)})
    commit(bootstrap, group, topic, READ)
    directory.mkdir()
    file = directory / "mirror.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties(bootstrap, topic).items()))
    program = java_program("mirror-maker", directory, MIRROR_MAKER, str(file))
    program.start()
    try:
        came = offsets_come(stack, group, f"{ALIAS}.{topic}", PARTITIONS)
    finally:
        program.terminate()
        program.wait_ended()
    assert "not supported on diskless topics" not in program.log.read_text()
    return topic if came else ""


def requests(stack: Stack, rack: str, api: str) -> float:
    """Those that the rack's proxy has had."""
    return Metrics(stack, rack).value("requests_total", api=api)


def properties(bootstrap: str, topic: str) -> dict[str, str]:
    """Both ends are the same cluster, by two names."""
    flow = f"{ALIAS}->target"
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
    stored = ("offset.storage", "status.storage", "config.storage")
    return {
        "clusters": f"{ALIAS},target",
        f"{ALIAS}.bootstrap.servers": bootstrap,
        "target.bootstrap.servers": bootstrap,
        f"{ALIAS}.consumer.client.id": f"mirror,diskless_rack_id={READS_IN}",
        "target.producer.client.id": f"mirror,diskless_rack_id={WRITES_IN}",
        f"{flow}.enabled": "true",
        f"{flow}.topics": topic,
        f"{flow}.groups": f"{topic}-readers",
        f"{flow}.emit.heartbeats.enabled": "false",
        f"target->{ALIAS}.emit.heartbeats.enabled": "false",  # so that nothing runs the other way
        f"{flow}.sync.group.offsets.enabled": "true",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.refresh.topics.interval.seconds": "2",
        f"{flow}.refresh.groups.interval.seconds": "2",
        f"{flow}.offset.lag.max": "0",
        "replication.factor": "3",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "1000",
        **{f"{name}.replication.factor": "3" for name in (*internal, *stored)},
        "tasks.max": "1",
    }


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """As a member of the group that has read so far would."""
    with consumer(bootstrap, group_id=group) as client:
        offsets = [TopicPartition(topic, partition, offset) for partition in range(PARTITIONS)]
        client.commit(offsets=offsets, asynchronous=False)


def offsets_come(stack: Stack, group: str, topic: str, partitions: int) -> bool:
    """Wait until the group has offsets in the copy: they come behind the records."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    asked = [TopicPartition(topic, partition) for partition in range(partitions)]
    with consumer(stack.bootstrap("rack-c"), group_id=group) as client:
        while not all(found.offset > 0 for found in client.committed(asked, 30)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.3)
    return True
