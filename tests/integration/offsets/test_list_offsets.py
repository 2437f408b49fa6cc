"""ListOffsets and OffsetForLeaderEpoch: a diskless topic answers field by field like a classic one on its broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.batches import GZIP, LZ4, SNAPPY, ZSTD, make_timed_batch
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, KINDS, create_topic, new_topic, offsets

PRODUCE, LIST_OFFSETS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 0, 2, 21, 23
VERSIONS = range(1, 12)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NODE = 1
BASE_MS = 1_700_000_000_000
INVALID_REQUEST, UNSUPPORTED_VERSION = 42, 35

BATCHES = (
    (0, [0, 10, 5]),
    (GZIP, [20, 7, 20, 3]),
    (SNAPPY, [1, 2]),
    (ZSTD, [30, 41, 41, 12, 29]),
    (LZ4, [41, 40]),
    (0, [8]),
)
"""Codecs and timestamps after `BASE_MS`: later batches are not always newer, nor are records in them."""
RECORDS = sum(len(times) for _, times in BATCHES)


class Side:
    """A topic of one kind, and a connection to its server: for a classic topic, the broker itself."""

    def __init__(self, stack: Stack, kind: str, configs: dict[str, str]) -> None:
        self.name = f"times-{kind}-{time.monotonic_ns()}"
        address = stack.bootstrap("rack-a") if kind == DISKLESS else f"127.0.0.1:{stack.ports.broker(NODE)}"
        self.address = Raw(address)
        create_topic(stack, self.name, kind, configs=configs, assignment=[[NODE, 2, 3]] * 2)
        offsets(stack, self.name, 1)

    def produce(self, batch: bytearray) -> dict[str, Any]:
        data = [{"name": self.name, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = ask(self.address, PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
        partition: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
        assert partition["error_code"] == 0, partition
        return partition

    def list_offsets(self, version: int, *asked: tuple[int, int]) -> list[tuple[Any, ...]]:
        """Send `asked`: (partition, timestamp). Return index, error code, timestamp, offset and leader epoch of each
        partition."""
        partitions = [
            {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": -1} for index, timestamp in asked
        ]
        topics = [{"name": self.name, "partitions": partitions}]
        answer = ask(self.address, LIST_OFFSETS, version, replica_id=-1, timeout=30_000, topics=topics)
        (topic,) = answer["topics"]
        fields = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")
        assert topic["name"] == self.name
        return sorted(tuple(one.get(field) for field in fields) for one in topic["partitions"])

    def delete_before(self, offset: int) -> None:
        topics = [{"name": self.name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = ask(self.address, DELETE_RECORDS, 2, topics=topics, timeout_ms=30_000, timeout=30_000)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    def epochs(self, version: int, *asked: tuple[int, int]) -> list[tuple[Any, ...]]:
        """Send `asked`: (partition, epoch). Return error code, partition, epoch and end offset of each."""
        partitions = [{"partition": index, "leader_epoch": epoch, "current_leader_epoch": -1} for index, epoch in asked]
        topics = [{"topic": self.name, "partitions": partitions}]
        (topic,) = ask(self.address, OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)["topics"]
        fields = ("error_code", "partition", "leader_epoch", "end_offset")
        return [tuple(one[field] for field in fields) for one in topic["partitions"]]


@contextmanager
def both(stack: Stack, configs: dict[str, str]) -> Iterator[list[Side]]:
    """Create a topic of each kind."""
    made = [Side(stack, kind, configs) for kind in KINDS]
    try:
        yield made
    finally:
        for side in made:
            side.address.close()


@pytest.fixture(scope="module")
def sides(running_stack: Stack) -> Iterator[list[Side]]:
    """Create topics with the same batches, each produced in its own request."""
    with both(running_stack, {"message.timestamp.before.max.ms": str(2**62)}) as made:
        for codec, times in BATCHES:
            batch = make_timed_batch([BASE_MS + one for one in times], codec=codec)
            for side in made:
                side.produce(batch)
        yield made


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_answers_every_time_alike(sides: list[Side], version: int) -> None:
    for timestamp in [*range(-8, 1), *(BASE_MS + after for after in range(-1, 44)), 2**62, 2**63 - 1]:
        classic, diskless = (side.list_offsets(version, (0, timestamp), (1, timestamp)) for side in sides)
        assert diskless == classic, timestamp


@pytest.mark.parametrize("version", [1, 7, 11])
def test_a_bad_partition_fails_alone(sides: list[Side], version: int) -> None:
    classic, diskless = (
        side.list_offsets(version, (0, BASE_MS + 41), (1, -2), (2, -1), (-1, -1), (7, -9)) for side in sides
    )
    assert diskless == classic
    assert [one[:2] for one in diskless] == [(-1, 3), (0, 0), (1, 0), (2, 3), (7, UNSUPPORTED_VERSION)]


def test_a_repeated_partition_is_rejected_once(sides: list[Side]) -> None:
    classic, diskless = (side.list_offsets(11, (0, -1), (1, -1), (0, -2)) for side in sides)
    assert diskless == classic
    assert [one[:2] for one in diskless] == [(0, INVALID_REQUEST), (1, 0)]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_no_epoch_reports_a_truncation(sides: list[Side], version: int) -> None:
    classic, diskless = sides
    asked = [(0, 0), (1, 0), (9, 0)]
    assert diskless.epochs(version, *asked) == classic.epochs(version, *asked)
    end = [(0, 0, epoch, RECORDS) for epoch in (0, 5, 2**31 - 1)]
    assert diskless.epochs(version, (0, 0), (0, 5), (0, 2**31 - 1)) == end, "the high watermark for any epoch"


def test_times_after_records_were_deleted(running_stack: Stack) -> None:
    """Delete records within a batch, within the row of a commit, and all of them."""
    with both(running_stack, {}) as made:
        now_ms = int(time.time() * 1000) - 1_000
        for times in ([50, 60, 10, 40], [30, 20], [35]):
            for side in made:
                side.produce(make_timed_batch([now_ms + one for one in times]))
        for before in (1, 2, 3, 5, 6, 7):
            for side in made:
                side.delete_before(before)
            for timestamp in [EARLIEST, LATEST, *(now_ms + after for after in range(0, 65, 5))]:
                classic, diskless = (side.list_offsets(11, (0, timestamp)) for side in made)
                assert diskless == classic, (before, timestamp - now_ms)
        maxima = [side.list_offsets(11, (0, MAX_TIMESTAMP))[0] for side in made]
        assert [one[3] for one in maxima] == [1, -1], "a broker names a deleted record as long as its segment stays"


def test_append_times(running_stack: Stack) -> None:
    """All records of a batch share its time: the first record is returned, wherever in the batch the log starts."""
    with both(running_stack, {"message.timestamp.type": "LogAppendTime"}) as made:
        for side in made:
            times = []
            for _ in range(3):
                times.append(side.produce(make_timed_batch([1, 2, 3], codec=GZIP))["log_append_time"])
                time.sleep(0.01)
            assert times == sorted(set(times))
            wanted = [(0, times[0] - 1), (0, times[0]), (0, times[0] + 1), (0, times[2]), (0, times[2] + 1)]
            found = [side.list_offsets(11, one)[0][1:4] for one in [*wanted, (0, MAX_TIMESTAMP)]]
            assert found == [
                (0, times[0], 0),
                (0, times[0], 0),
                (0, times[1], 3),
                (0, times[2], 6),
                (0, -1, -1),
                (0, times[2], 6),
            ]
            side.delete_before(4)
            assert side.list_offsets(11, (0, times[1]))[0][1:4] == (0, times[1], 4)


@pytest.mark.parametrize("version", [10, 11])
def test_the_timeout_field_is_ignored(sides: list[Side], version: int) -> None:
    """kafka-python sends this field; for brokers it is the timeout of reads from remote storage."""
    for side in sides:
        partitions = [{"partition_index": 0, "timestamp": BASE_MS + 41, "current_leader_epoch": -1}]
        topics = [{"name": side.name, "partitions": partitions}]
        answer = ask(side.address, LIST_OFFSETS, version, replica_id=-1, timeout=0, topics=topics)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0


def test_both_halves_of_a_request_are_answered(running_stack: Stack) -> None:
    names = [new_topic(running_stack, "halves", kind) for kind in (CLASSIC, DISKLESS)]
    for name in names:
        offsets(running_stack, name)
    topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in names]
    answers = [
        ask(
            f"127.0.0.1:{running_stack.ports.broker_port_start(0) + node}",
            LIST_OFFSETS,
            11,
            replica_id=-1,
            topics=topics,
        )
        for node in (1, 2, 3)
    ]
    errors = [{one["name"]: one["partitions"][0]["error_code"] for one in answer["topics"]} for answer in answers]
    assert all(each[names[1]] == 0 for each in errors)
    assert sorted(each[names[0]] for each in errors) == [0, 6, 6], "only the leader answers for a classic topic"
