"""The producers: threads that write until they are asked to stop."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.pipeline_under_load.books import Keeps, Partition, RecordId, digest, id_header, most_bytes
from tests.support.worker import Worker

TICK_SECONDS = 0.1
RECORDS_PER_TICK = 2
"""Records from each producer to each partition per tick."""
DELIVERY_SECONDS = 120
MAX_VALUE_BYTES = 3_000
KEYS = 60
"""Number of keys of a compacted topic, per producer."""
TOMBSTONES = 0.1
"""Share of tombstones in all records of a compacted topic."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Topic:
    """A topic and its books."""

    name: str
    keeps: Keeps
    partitions: list[Partition] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, keeps: Keeps, partitions: int, retention_bytes: int = 0) -> Topic:
        """Create a topic with empty books."""
        return cls(name, keeps, [Partition(keeps, retention_bytes) for _ in range(partitions)])


class Writer(Worker):
    """One producer of one topic: every second one is idempotent, and each has its own codec."""

    def __init__(
        self, run: bytes, number: int, topic: Topic, bootstrap: str, tick_seconds: float = TICK_SECONDS
    ) -> None:
        self.failed: list[str] = []
        super().__init__(f"writer {number} of {topic.name}", self.failed.append)
        self.acknowledged = 0
        self._run, self._number, self._topic = run, number, topic
        self._tick_seconds = tick_seconds
        self._chance = random.Random(number)
        self._filling = self._chance.randbytes(2 * MAX_VALUE_BYTES)
        self._sequences = [0] * len(topic.partitions)
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "compression.type": COMPRESSIONS[number % len(COMPRESSIONS)],
            "linger.ms": 20,
            "message.timeout.ms": DELIVERY_SECONDS * 1000,
            "log_level": 2,
        }
        # A producer that is not idempotent keeps the order only with one request at a time.
        settings |= {"enable.idempotence": True} if number % 2 else {"max.in.flight": 1, "retries": 0}
        self._producer = Producer(settings)
        self.start()

    def work(self) -> None:
        """Produce until `finish`. On return, every sent record is acknowledged, or counted in `failed`."""
        while not self.ended.is_set():
            due = time.monotonic() + self._tick_seconds
            for partition in range(len(self._topic.partitions)):
                for _ in range(RECORDS_PER_TICK):
                    self._send(partition)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        if left := self._producer.flush(DELIVERY_SECONDS):
            self.failed.append(f"{self._topic.name}: {left} records were never answered")

    def _send(self, partition: int) -> None:
        if len(self._producer) > 5_000:
            return
        # Numbers go on through all partitions, so that a record in the wrong partition is found, too.
        record = RecordId(self._number * len(self._sequences) + partition, self._sequences[partition])
        self._sequences[partition] += 1
        chance = self._chance
        start = chance.randrange(MAX_VALUE_BYTES)
        value: bytes | None = self._filling[start : start + chance.randrange(MAX_VALUE_BYTES)]
        key = b"%d-%d" % record
        if self._topic.keeps == Keeps.THE_LAST_OF_EACH_KEY:
            key = b"%d-%d" % (record.producer, chance.randrange(KEYS))
            value = None if chance.random() < TOMBSTONES else value
        headers = [id_header(self._run, record), ("empty", b""), ("none", None)]
        timestamp_ms = time.time_ns() // 1_000_000
        books = self._topic.partitions[partition]
        books.sent(record, key, digest(key, value, headers, timestamp_ms), most_bytes(key, value, headers))
        self._producer.produce(
            self._topic.name,
            value,
            key,
            partition,
            on_delivery=partial(self._delivered, books, record),
            timestamp=timestamp_ms,
            headers=headers,
        )

    def _delivered(self, books: Partition, record: RecordId, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(f"{self._topic.name}: {record} failed: {error.str()}")
            return
        offset = message.offset()
        books.acknowledged(record, offset if offset is not None and offset >= 0 else -1)
        self.acknowledged += 1
