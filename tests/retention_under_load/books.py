"""The records sent to one topic in one of its lives, and the records that the topic may have deleted.

One idempotent producer writes each partition from its beginning, so a record's offset is its sequence number. A
missing, doubled or reordered record, or a record of another life, shows in the first record that a reader gets.
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
"""Maximum bytes of one record in its batch, with its key, its framing and a batch header."""
MAX_PROBLEMS, MOST_OF_A_KIND = 30, 3


@dataclass(frozen=True, slots=True)
class Kind:
    """The way in which a topic deletes records."""

    label: str
    retention_ms: int = -1
    retention_bytes: int = -1
    """Limit for each partition."""
    on_request: bool = False
    """True if DeleteRecords deletes."""
    is_deleted: bool = False
    """True if the topic itself is deleted and recreated under its name from time to time."""

    @property
    def configs(self) -> dict[str, str]:
        """Return the configs for CreateTopics."""
        return {"retention.ms": str(self.retention_ms), "retention.bytes": str(self.retention_bytes)}


KINDS = (
    Kind("by-time", retention_ms=3_000),
    Kind("by-size", retention_bytes=100_000),
    Kind("by-both", retention_ms=8_000, retention_bytes=200_000),
    Kind("on-request", on_request=True),
    Kind("deleted", is_deleted=True),
)


class Problems:
    """Problems that any thread reports; the first few of each kind are kept as text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self.count = 0
        self.reports: list[str] = []

    def report(self, text: str) -> None:
        """Count one problem."""
        with self._lock:
            self.count += 1
            kind = re.sub(r"[0-9]+", "#", text)
            self._kinds[kind] += 1
            if self._kinds[kind] <= MOST_OF_A_KIND and len(self.reports) < MAX_PROBLEMS:
                self.reports.append(f"{time.strftime('%H:%M:%S')} {text}")


@dataclass
class PartitionBooks:
    """One partition. Its producer's thread writes it, all threads read it."""

    writer: payload.Writer
    checksums: list[int] = field(default_factory=list)
    """Checksums of key and value, by sequence."""
    sent_ms: list[int] = field(default_factory=list)
    """Record timestamps, by sequence."""
    acknowledged: int = 0
    """Number of acknowledged records, counted from the beginning."""
    delete_before: int = 0
    """Highest offset that was sent in a DeleteRecords request."""


class Life:
    """One topic from its creation to its deletion."""

    def __init__(self, run: bytes, topic: str, kind: Kind, number: int) -> None:
        """Use `number`, which no other life of the run has."""
        self.run = run
        self.topic = topic
        self.kind = kind
        self.number = number
        self.partitions = [
            PartitionBooks(payload.Writer(run, self.producer(partition), RECORD_BYTES))
            for partition in range(PARTITIONS)
        ]
        self.ending = threading.Event()
        """Set when the topic is about to be deleted: from then on, clients may get the error that it is unknown."""

    def __str__(self) -> str:
        return f"{self.topic} (life {self.number})"

    def producer(self, partition: int) -> int:
        """Return the producer that the records of a partition name."""
        return self.number * PARTITIONS + partition

    def new_record(self, partition: int) -> tuple[bytes, bytes, int]:
        """Return key, value and timestamp of the next record, and enter it in the books."""
        books = self.partitions[partition]
        key, value = books.writer.record(len(books.checksums))
        timestamp_ms = time.time_ns() // 1_000_000
        books.sent_ms.append(timestamp_ms)
        books.checksums.append(payload.checksum(key, value))
        return key, value, timestamp_ms

    def wrong(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> str:
        """Return the error in a record that was read; empty if it is right."""
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
        """Return why the log may not start there yet; empty if it may."""
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
