"""What was sent to one topic in one of its lives, and what of it the topic may have forgotten.

One idempotent producer writes each partition from its beginning, so a record's offset is its sequence number: whatever
is missing, doubled, reordered, or another life's, shows in the first record that a reader gets.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from proxy.demo import payload

PARTITIONS = 2
RECORD_BYTES = 2048
MAX_STORED_BYTES = RECORD_BYTES + 200
"""Of one record in its batch, at most: with its key, its framing and a header of the batch that is its own."""
MAX_PROBLEMS, MOST_OF_A_KIND = 30, 3


@dataclass(frozen=True, slots=True)
class Kind:
    """How a topic forgets."""

    label: str
    retention_ms: int = -1
    retention_bytes: int = -1
    """Of each partition."""
    on_request: bool = False
    """By DeleteRecords."""
    is_deleted: bool = False
    """And made again under its name, now and again."""

    @property
    def configs(self) -> dict[str, str]:
        """Of CreateTopics."""
        return {"retention.ms": str(self.retention_ms), "retention.bytes": str(self.retention_bytes)}


KINDS = (
    Kind("by-time", retention_ms=3_000),
    Kind("by-size", retention_bytes=100_000),
    Kind("by-both", retention_ms=8_000, retention_bytes=200_000),
    Kind("on-request", on_request=True),
    Kind("deleted", is_deleted=True),
)


class Problems:
    """What should not have happened, as told by any thread; the first ones of each kind in words."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self.count = 0
        self.reports: list[str] = []

    def report(self, text: str) -> None:
        """One more."""
        with self._lock:
            self.count += 1
            kind = re.sub(r"[0-9]+", "#", text)
            self._kinds[kind] += 1
            if self._kinds[kind] <= MOST_OF_A_KIND and len(self.reports) < MAX_PROBLEMS:
                self.reports.append(f"{time.strftime('%H:%M:%S')} {text}")


@dataclass
class PartitionBooks:
    """One partition. Written by its producer's thread, read by all."""

    writer: payload.Writer
    checksums: list[int] = field(default_factory=list)
    """By sequence, of key and value."""
    sent_ms: list[int] = field(default_factory=list)
    """By sequence: the record's timestamp."""
    acknowledged: int = 0
    """Records from the beginning on."""
    delete_before: int = 0
    """The highest offset that DeleteRecords was asked to delete before."""


class Life:
    """One topic from its creation to its deletion."""

    def __init__(self, run: bytes, topic: str, kind: Kind, number: int) -> None:
        """`number`: no other life of the run has it."""
        self.run = run
        self.topic = topic
        self.kind = kind
        self.number = number
        self.partitions = [
            PartitionBooks(payload.Writer(run, self.producer(partition), RECORD_BYTES))
            for partition in range(PARTITIONS)
        ]
        self.ending = threading.Event()
        """The topic is about to be deleted: from now on clients may be told that it is unknown."""

    def __str__(self) -> str:
        return f"{self.topic} (life {self.number})"

    def producer(self, partition: int) -> int:
        """What the records of a partition name as their producer."""
        return self.number * PARTITIONS + partition

    def new_record(self, partition: int) -> tuple[bytes, bytes, int]:
        """Key, value and timestamp of the next record, which is in the books from now on."""
        books = self.partitions[partition]
        key, value = books.writer.record(len(books.checksums))
        timestamp_ms = time.time_ns() // 1_000_000
        books.sent_ms.append(timestamp_ms)
        books.checksums.append(payload.checksum(key, value))
        return key, value, timestamp_ms

    def wrong(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> str:
        """What is wrong with a record that was read; empty where nothing is."""
        sent = payload.read(self.run, value)
        if sent is None:
            return "is of another run, or damaged"
        if sent.producer != self.producer(partition):
            return f"was written by producer {sent.producer}, for another partition or life"
        if sent.sequence != offset:
            return f"is record {sent.sequence}"
        if payload.checksum(key, value) != self.partitions[partition].checksums[offset]:
            return "has other bytes than were sent"
        return ""

    def wrong_start(self, partition: int, log_start: int) -> str:
        """Why the log may not start there already; empty where it may."""
        if log_start == 0:
            return ""
        books, kind = self.partitions[partition], self.kind
        age_ms = time.time_ns() // 1_000_000 - books.sent_ms[log_start - 1]
        if 0 <= kind.retention_ms <= age_ms:
            return ""
        kept_bytes = (len(books.checksums) - log_start) * MAX_STORED_BYTES
        if 0 <= kind.retention_bytes <= kept_bytes:
            return ""
        if kind.on_request and log_start <= books.delete_before:
            return ""
        return (
            f"the log starts at {log_start}: the record before is {age_ms} ms old, at most {kept_bytes} bytes are "
            f"kept, DeleteRecords was asked for {books.delete_before}"
        )
