"""MirrorMaker 2 copies a classic topic into a diskless one and back, with the groups' offsets:
docs/clients/migration.md."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.docs.recipes import recipe, written
from tests.support.confluent import consumer, produce_to, read_partitions
from tests.support.java_tools import java_program
from tests.support.metrics import Metrics
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
THERE, BACK = "diskless", "classic"
"""Aliases that MirrorMaker puts before a topic's name. Topics with the first alias are diskless here."""
KIND_OF = {THERE: CLASSIC, BACK: DISKLESS}
"""Kind of topic that each alias copies."""
PARTITIONS, RECORDS = 3, 40
READS_IN, WRITES_IN = "rack-b", "rack-c"
TIMEOUT_SECONDS = 110
ATTEMPTS = 3
"""Number of attempts. MirrorMaker translates no offset older than its checkpoint task. If the task starts late, it
translates offsets only for a group that has read everything."""


@pytest.mark.timeout(500)
@pytest.mark.parametrize("alias", [THERE, BACK])
def test_a_topic_moves(stack: Stack, tmp_path: Path, alias: str) -> None:
    """MirrorMaker appends `|…` to the client ID; the rack in the ID still counts."""
    before = (requests(stack, READS_IN, "Fetch"), requests(stack, WRITES_IN, "Produce"))
    moved = (move(stack, tmp_path / str(number), alias) for number in range(ATTEMPTS))
    topic = next((one for one in moved if one), "")
    assert topic, f"no offsets of the group in the copy within {TIMEOUT_SECONDS} s, {ATTEMPTS} times"
    assert requests(stack, READS_IN, "Fetch") > before[0]
    assert requests(stack, WRITES_IN, "Produce") > before[1]
    mirrored, through = f"{alias}.{topic}", stack.bootstrap("rack-c")
    assert read_partitions(through, mirrored, PARTITIONS) == read_partitions(through, topic, PARTITIONS)
    on_brokers = read_partitions(stack.direct_bootstrap, mirrored, PARTITIONS)
    assert (on_brokers == [[]] * PARTITIONS) == (alias == THERE)


def move(stack: Stack, directory: Path, alias: str) -> str:
    """Return the name of a topic that was copied with its group's offsets; empty if the offsets did not arrive."""
    topic = new_topic(stack, "moving", KIND_OF[alias], PARTITIONS)
    bootstrap = stack.bootstrap("rack-a")
    produce_to(bootstrap, topic, {partition: samples(RECORDS, f"{partition}") for partition in range(PARTITIONS)})
    commit(bootstrap, f"{topic}-readers", topic, RECORDS)
    directory.mkdir()
    file = written(directory / "mirror.properties", properties(stack, alias, topic))
    program = java_program("mirror-maker", directory, MIRROR_MAKER, file)
    program.start()
    try:
        came = offsets_come(stack, f"{topic}-readers", f"{alias}.{topic}")
    finally:
        program.terminate()
        program.wait_ended()
    assert "not supported on diskless topics" not in program.log.read_text()
    return topic if came else ""


def requests(stack: Stack, rack: str, api: str) -> float:
    """Return the number of requests that the rack's proxy has received."""
    return Metrics(stack, rack).value("requests_total", api=api)


def properties(stack: Stack, alias: str, topic: str) -> dict[str, str]:
    """Return the recipe of docs/clients/migration.md for one direction: both ends are the same cluster, by two
    names."""
    flow, stored = f"{alias}->target", ("offset.storage", "status.storage", "config.storage")
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
    return recipe(stack, "docs/clients/migration.md", f"clusters={alias},target") | {
        f"{alias}.bootstrap.servers": stack.bootstrap("rack-a"),
        "target.bootstrap.servers": stack.bootstrap("rack-a"),
        f"{alias}.consumer.client.id": f"mirror,diskless_rack_id={READS_IN}",
        "target.producer.client.id": f"mirror,diskless_rack_id={WRITES_IN}",
        f"{flow}.topics": topic,
        f"{flow}.groups": f"{topic}-readers",
        f"{flow}.sync.group.offsets.interval.seconds": "1",
        f"{flow}.emit.checkpoints.interval.seconds": "1",
        f"{flow}.refresh.topics.interval.seconds": "2",
        f"{flow}.refresh.groups.interval.seconds": "2",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "1000",
        **{f"{name}.replication.factor": "3" for name in (*internal, *stored)},
        "tasks.max": "1",
    }


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset like a member of the group that has read this far."""
    with consumer(bootstrap, group_id=group) as client:
        offsets = [TopicPartition(topic, partition, offset) for partition in range(PARTITIONS)]
        client.commit(offsets=offsets, asynchronous=False)


def offsets_come(stack: Stack, group: str, topic: str) -> bool:
    """Wait until the group has offsets in the copy: they arrive after the records."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while min(group_offsets(stack, group, topic)) <= 0:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.3)
    return True


def group_offsets(stack: Stack, group: str, topic: str) -> list[int]:
    """Return offsets by partition; negative if there is none."""
    asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    with consumer(stack.bootstrap("rack-c"), group_id=group) as client:
        return [found.offset for found in client.committed(asked, 30)]
