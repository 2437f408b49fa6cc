"""The producer of one life of a topic, and its readers: threads that end when they are asked to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.retention_under_load.books import PARTITIONS, Life, Problems
from tests.support.worker import Worker

TICK_SECONDS = 0.1
RECORDS_PER_TICK = 2
"""Records per tick and partition."""
DELIVERY_SECONDS = 90
FINISH_SECONDS = 90
_MAX_MESSAGES = 500
_ASK_SECONDS = 5.0


class Sender(Worker):
    """One idempotent producer for some or all partitions."""

    def __init__(
        self,
        life: Life,
        bootstrap: str,
        problems: Problems,
        partitions: Sequence[int] = range(PARTITIONS),
        records_per_tick: int = RECORDS_PER_TICK,
    ) -> None:
        """Write to any kind of `life` that has books of these partitions, `records_per_tick` to each partition."""
        super().__init__(f"sender of {life}", problems.report)
        self.life = life
        self._problems = problems
        self._partitions = partitions
        self._records_per_tick = records_per_tick
        self._producer: Producer | None = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                "topic.metadata.refresh.interval.ms": 2000,
                "error_cb": self._complain,
                "log_level": 2,
            }
        )
        self.start()

    def work(self) -> None:
        """Produce until `finish`. On return, all records are acknowledged, or given up because the topic is gone."""
        producer = self._producer
        assert producer is not None
        while not self.ended.is_set():
            for partition in self._partitions:
                for _ in range(self._records_per_tick):
                    self._send(producer, partition)
            due = time.monotonic() + TICK_SECONDS
            while (left := due - time.monotonic()) > 0:
                producer.poll(left)
        if self.life.ending.is_set():
            producer.purge()
        if producer.flush(DELIVERY_SECONDS):
            self._problems.report(f"{self.life}: a producer got no result for its records")
        # The producer ends with its last reference. Until then it requests its topic's metadata. If the topic is gone,
        # this creates a classic topic of that name (`auto.create.topics.enable` of the brokers).
        self._producer = None

    def _send(self, producer: Producer, partition: int) -> None:
        if len(producer) > 5_000:  # a proxy is away: stay below the limit of librdkafka's queue
            return
        offset = len(self.life.partitions[partition].checksums)
        key, value, timestamp_ms = self.life.new_record(partition)
        report = partial(self._delivered, partition, offset)
        try:
            producer.produce(self.life.topic, value, key, partition, timestamp=timestamp_ms, on_delivery=report)
        except (BufferError, KafkaException) as error:
            self._fail(partition, offset, str(error))

    def _delivered(self, partition: int, offset: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(partition, offset, error.str())
            return
        # librdkafka does not know the offset of records that it sent twice, if the broker reported a duplicate.
        offset_or_none = message.offset()
        self._acknowledge(partition, offset, None if offset_or_none in (-1, -1001) else offset_or_none)

    def _acknowledge(self, partition: int, sequence: int, offset: int | None) -> None:
        if offset not in (sequence, None):
            self._problems.report(
                f"{self.life}: record {sequence} of partition {partition} was acknowledged at offset {offset}"
            )
        self.life.partitions[partition].acknowledged += 1

    def _fail(self, partition: int, offset: int, error: str) -> None:
        if not self.life.ending.is_set():
            self._problems.report(f"{self.life}: record {offset} of partition {partition} failed: {error}")

    def _complain(self, error: KafkaError) -> None:
        if error.fatal():
            self._fail(-1, -1, f"fatal: {error.str()}")


class Reader(Worker):
    """One rack's reader of all partitions, from their beginning."""

    def __init__(self, life: Life, rack: str, bootstrap: str, problems: Problems) -> None:
        super().__init__(f"{rack}'s reader of {life}", problems.report)
        self.life = life
        self.records = 0
        self.out_of_range = 0
        """Times that the log start overtook the reader."""
        self.skipped = 0
        """Records that were deleted before the reader reached them."""
        self._rack = rack
        self._problems = problems
        self._next = [0] * PARTITIONS
        self._goal: list[int] | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{life.topic}-{rack}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 2000,
                "error_cb": lambda error: None,
                "log_level": 2,
            }
        )
        self.start()

    def finish(self) -> None:
        """Read all acknowledged records, unless the topic is gone; then stop."""
        self._goal = [books.acknowledged for books in self.life.partitions]
        super().finish()

    def work(self) -> None:
        """Read all records, and after `finish` the remaining ones."""
        try:
            self._assign()
            while not self.ended.is_set():
                self._read()
            deadline = time.monotonic() + FINISH_SECONDS
            while self._behind() and not self.life.ending.is_set():
                if time.monotonic() > deadline:
                    self._report(f"has read to {self._next} only, of {self._goal} records")
                    return
                self._read()
        finally:
            self._consumer.close()

    def _behind(self) -> bool:
        """True if more records will come; a reader also notices deletions meanwhile."""
        assert self._goal is not None
        return any(at < goal for at, goal in zip(self._next, self._goal, strict=True))

    def _assign(self) -> None:
        positions = [TopicPartition(self.life.topic, *one) for one in enumerate(self._next)]
        self._consumer.assign(positions)

    def _read(self) -> None:
        overtaken: dict[int, int] = {}
        for message in self._consumer.consume(_MAX_MESSAGES, 0.2):
            error, partition = message.error(), message.partition()
            if error is None:
                assert partition is not None
                self._take(partition, message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                offset = message.offset()
                assert partition is not None
                assert offset is not None
                overtaken[partition] = offset
        # This comes after the records of the same poll, because a new start at an offset affects all partitions.
        for partition, offset in overtaken.items():
            self._overtaken(partition, offset)
        if overtaken:
            self._assign()

    def _take(self, partition: int, message: Message) -> None:
        offset, expected = message.offset(), self._next[partition]
        assert offset is not None
        if offset < expected:
            self._report(f"got offset {offset} of partition {partition} behind {expected - 1}")
            return
        if offset > expected:
            self._report(f"got offset {offset} of partition {partition} in the place of {expected}")
        if wrong := self.life.wrong(partition, offset, message.key(), message.value()):
            self._report(f"offset {offset} of partition {partition} {wrong}")
        self._next[partition] = offset + 1
        self.records += 1

    def _overtaken(self, partition: int, asked: int) -> None:
        """Handle an out-of-range error, for which only the log start can be the reason.

        The error may come once more after the reader has gone on, because the request was sent earlier.
        """
        log_start = self._start(partition)
        if log_start is None or self.life.ending.is_set():
            return  # the error will come again
        if log_start <= asked:
            self._report(
                f"got an out-of-range error for offset {asked} of partition {partition}, whose log starts at "
                f"{log_start}"
            )
        elif log_start <= self._next[partition]:
            return
        elif wrong := self.life.wrong_start(partition, log_start):
            self._report(f"partition {partition}: {wrong}")
        else:
            self.out_of_range += 1
            self.skipped += log_start - self._next[partition]
            self._next[partition] = log_start

    def _start(self, partition: int) -> int | None:
        """Return the log start; None if nobody answers, as while a proxy is away."""
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self.life.topic, partition), timeout=_ASK_SECONDS, cached=False
            )
        except KafkaException:
            return None
        return None if found is None else found[0]

    def _report(self, text: str) -> None:
        if not self.life.ending.is_set():
            self._problems.report(f"{self.life}: {self._rack} {text}")
