"""The checker: compares the records that a reader gets with the records that were written to each topic.

Every partition has one idempotent producer, which numbers its records. The first acknowledgement or reader that reveals
the record at an offset enters it in the books, and every later one is checked against them. So a missing, doubled,
reordered or foreign record shows in the first record that a reader gets. Two readers that get different records at one
offset show too.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.demo import payload
from tests.retention_under_load.books import Problems

RECORD_BYTES = 200
MAX_PARTITIONS = 64
"""Partitions of a topic. Life number and partition together make the number of a producer."""
MANY_TWICE = 20
"""Records of a partition that may be in its log twice, because their producer sent them twice."""
CONNECTION = "connection"
"""Lost connections and timeouts: kinds of errors that depend on where a client is connected to."""
RETRIABLE = "retriable: "
"""Prefix of errors that no client library reports to its application, because the next attempt may succeed."""

Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class PartitionBooks:
    """One partition. Its producer's thread and the thread that listens to readers write it."""

    writer: payload.Writer
    checksums: list[int] = field(default_factory=list)
    """Checksums of key and value, by record number."""
    log: dict[int, int] = field(default_factory=dict)
    """Record number by offset, as first reported by a producer or reader."""
    acknowledged: set[int] = field(default_factory=set)
    """Numbers of acknowledged records."""
    failed: int = 0
    """Records that the producer gave up: they are not stored, or may not be."""
    end: int = 0
    """Offset after the highest acknowledged one."""

    def acknowledge(self, number: int, offset: int | None) -> None:
        """Note that a record was acknowledged; `offset` may be unknown."""
        self.acknowledged.add(number)
        if offset is not None:
            self.log.setdefault(offset, number)
            self.end = max(self.end, offset + 1)

    def twice(self) -> int:
        """Return the records that are in the log more than once."""
        return len(self.log) - len(set(self.log.values()))

    def wrong(self) -> Iterator[str]:
        """Return errors in the log, once its readers have read all of it."""
        if lost := self.acknowledged - set(self.log.values()):
            yield f"{len(lost)} acknowledged records are not in the log, {min(lost)} is the first"
        in_order = [self.log[offset] for offset in sorted(self.log)]
        first_ones = list(dict.fromkeys(in_order))
        if first_ones != sorted(first_ones):
            yield "records are not in the order in which they were sent"


class Life:
    """One topic from its creation to its deletion. Its producers' threads write it, all threads read it."""

    def __init__(self, run: bytes, topic: str, number: int, partitions: int) -> None:
        """Use `number`, which no other life of the run has."""
        self.run = run
        self.topic = topic
        self.number = number
        self.partitions: list[PartitionBooks] = []
        self.ending = threading.Event()
        """Set when the topic is about to be deleted: from then on, clients may get the error that it is unknown."""
        self.grow(partitions)

    def __str__(self) -> str:
        return f"{self.topic} (life {self.number})"

    def grow(self, partitions: int) -> None:
        """Note that the topic has `partitions` partitions from now on."""
        for partition in range(len(self.partitions), partitions):
            producer = self.number * MAX_PARTITIONS + partition
            self.partitions.append(PartitionBooks(payload.Writer(self.run, producer, RECORD_BYTES)))

    def new_record(self, partition: int) -> tuple[bytes, bytes, int]:
        """Return key, value and timestamp of the next record, and enter it in the books."""
        books = self.partitions[partition]
        key, value = books.writer.record(len(books.checksums))
        books.checksums.append(payload.checksum(key, value))
        return key, value, time.time_ns() // 1_000_000

    def wrong(self) -> Iterator[str]:
        """Return errors in its log, once its readers have read all of it."""
        for partition, books in enumerate(self.partitions):
            yield from (f"partition {partition} of {self}: {complaint}" for complaint in books.wrong())


class Reset(NamedTuple):
    """An OFFSET_OUT_OF_RANGE error that a reader got."""

    topic: str
    partition: int
    life: int
    """Offset at which it was reading, 0 before any record."""


class ReaderBooks:
    """Records and errors of one reader, checked as they arrive."""

    def __init__(self, name: str, lives: dict[str, list[Life]], problems: Problems) -> None:
        """Use `lives` of each topic, the current one last; new ones are added while the reader reads."""
        self.name = name
        self.records = 0
        self.by_topic: Counter[str] = Counter()
        self.latencies_ms: list[float] = []
        self.errors: Counter[str] = Counter()
        """Errors by kind, as the application got them."""
        self.expected_resets = 0
        """Resets because the topic was recreated and is shorter."""
        self.resets: Counter[Reset] = Counter()
        """All other resets."""
        self._lives = lives
        self._problems = problems
        self._position: dict[Place, tuple[int, int]] = {}
        """Number of the life and the next offset, by topic and partition."""

    def position(self, life: Life, partition: int) -> int:
        """Return how many records of a life it has read, counted from the beginning."""
        number, following = self._position.get((life.topic, partition), (0, 0))
        return following if number == life.number else 0

    def behind(self, life: Life) -> dict[int, tuple[int, int]]:
        """Return the partitions with missing acknowledged records: how many it has, of how many."""
        counts = {index: (self.position(life, index), books.end) for index, books in enumerate(life.partitions)}
        return {index: (has, of) for index, (has, of) in counts.items() if has < of}

    def take(self, event: dict[str, Any]) -> str | None:
        """Take a line of the reader's program; return the text if it is not an event."""
        if event["event"] == "record":
            self._record(event)
        elif event["event"] == "reset":
            self._reset(event["topic"], event["partition"])
        elif event["event"] == "error":
            self.errors[event["kind"]] += 1
        else:
            return str(event)
        return None

    def _record(self, event: dict[str, Any]) -> None:
        topic, partition, offset = event["topic"], event["partition"], event["offset"]
        number, of_partition = divmod(event["producer"], MAX_PARTITIONS)
        where = f"{self.name}: offset {offset} of partition {partition} of {topic}"
        life = next((one for one in self._lives.get(topic, ()) if one.number == number), None)
        if life is None or of_partition != partition:
            self._problems.report(f"{where} was written by producer {event['producer']}, to another partition")
            return
        self._check(life, partition, offset, event, where)
        self.records += 1
        self.by_topic[topic] += 1
        self.latencies_ms.append(event["ms"])

    def _check(self, life: Life, partition: int, offset: int, event: dict[str, Any], where: str) -> None:
        place = (life.topic, partition)
        number, expected = self._position.get(place, (life.number, 0))
        if number > life.number:
            self._problems.report(f"{where} is of life {life.number}, after records of life {number}")
            return
        if number < life.number:
            expected = 0
        if offset < expected:
            self._problems.report(f"{where} came after {expected - 1}: it came twice, or late")
            return
        if offset > expected:
            self._problems.report(f"{where} came in the place of {expected}: {offset - expected} records are lost")
        books, record = life.partitions[partition], event["sequence"]
        if (known := books.log.setdefault(offset, record)) != record:
            self._problems.report(f"{where} is record {record}, and {known} to others")
        elif record >= len(books.checksums):
            self._problems.report(f"{where} was never written")
        elif event["checksum"] != books.checksums[record]:
            self._problems.report(f"{where} has other bytes than were sent")
        high = event.get("high")
        if high is not None and high > len(books.checksums) + MANY_TWICE:
            self._problems.report(f"{where} came with high watermark {high}, of {len(books.checksums)} records")
        self._position[place] = (life.number, offset + 1)

    def _reset(self, topic: str, partition: int) -> None:
        number, _ = self._position.get((topic, partition), (0, 0))
        present = self._lives[topic][-1]
        if number < present.number or present.ending.is_set():
            self.expected_resets += 1
            return
        self.resets[Reset(topic, partition, number)] += 1
        self._position[topic, partition] = (number, 0)


def compare(proxied: ReaderBooks, direct: ReaderBooks, problems: Problems) -> None:
    """Report errors and out-of-range offsets that a reader met and its twin at the brokers did not."""
    for kind in sorted(proxied.errors.keys() - direct.errors.keys()):
        if kind != CONNECTION and not kind.startswith(RETRIABLE):
            problems.report(f"{proxied.name} got {kind!r} {proxied.errors[kind]} times, its twin never")
    for reset, count in sorted(proxied.resets.items()):
        if not direct.resets[reset]:
            problems.report(
                f"{proxied.name} got {count} times that its offset of partition {reset.partition} of "
                f"{reset.topic} is out of range, its twin never"
            )
