"""Run Apache Kafka's own log cleaner on a classic topic, as the reference for what compaction must keep.

    with quick_cleaner(stack):
        cleaned = CleanedLog(stack, "label", configs={"delete.retention.ms": "0"})
        cleaned.produce(batches)       # exact bytes: producers, codecs, timestamps and headers as the test made them
        cleaned.clean()                # seals all of it, and waits until the cleaner has cleaned it
        cleaned.records(), cleaned.batches()

The cleaner skips the active segment, and a segment ends only when an append does not fit into it. So `clean` appends
one batch as large as a segment, the *seal*; then everything before it can be cleaned. A log to compare with must get
the same seals at the same places (`seal_batch`, each with its own key). The seal of the last `clean` is in the active
segment, so compare only what is before `cleaned_to`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from proxy.demo.stack import Stack
from proxy.records.batches import read_header
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.records import Stored
from tests.support.topics import CLASSIC, create_topic

NODE = 1
"""Broker that has the only replica."""
BACKOFF_MS = 50
SEGMENT_BYTES = 65_536
"""Maximum size of a batch; every seal has this size."""
ALWAYS_DIRTY = "0"
TIMEOUT_SECONDS = 90.0
CHECKPOINT = "cleaner-offset-checkpoint"

_PRODUCE, _PRODUCE_VERSION = 0, 9
_FETCH, _FETCH_VERSION = 1, 11
_NOT_THERE_YET = {3, 6}
"""Unknown topic or partition, or not the leader: brokers learn of a new topic one after the other."""


@contextmanager
def quick_cleaner(stack: Stack, node: int = NODE) -> Iterator[None]:
    """Make a broker's cleaner look for work all the time. By default it looks every 15 s."""
    name = "log.cleaner.backoff.ms"
    _alter_broker(stack, node, ConfigEntry(name, str(BACKOFF_MS), incremental_operation=AlterConfigOpType.SET))
    try:
        yield
    finally:
        _alter_broker(stack, node, ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE))


def _alter_broker(stack: Stack, node: int, entry: ConfigEntry) -> None:
    client = AdminClient({"bootstrap.servers": stack.direct_bootstrap})
    resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
    for answer in client.incremental_alter_configs([resource]).values():
        answer.result(30)


def seal_batch(number: int, timestamp_ms: int) -> bytes:
    """Build the batch that ends a segment: SEGMENT_BYTES in all, one record with the key `seal-<number>`."""
    size = SEGMENT_BYTES - 200
    while True:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * SEGMENT_BYTES)
        assert builder.append(0, timestamp_ms, b"seal-%d" % number, b"\0" * size, []) is not None
        batch = bytes(builder.build())
        if len(batch) == SEGMENT_BYTES:
            return batch
        size += SEGMENT_BYTES - len(batch)


class BatchLog:
    """One partition of a topic, written and read by the batch at one listener."""

    def __init__(self, address: str, topic: str, partition: int = 0) -> None:
        self.address = address
        self.topic = topic
        self.partition = partition

    def produce(self, batches: Iterable[bytes | bytearray], *, timeout_seconds: float = TIMEOUT_SECONDS) -> list[int]:
        """Append batches one after the other and return their base offsets. Raises AssertionError for an error of any
        batch."""
        deadline = time.monotonic() + timeout_seconds
        offsets = []
        with Raw(self.address) as raw:
            for batch in batches:
                while (response := self._produce(raw, bytes(batch)))["error_code"] in _NOT_THERE_YET:
                    assert time.monotonic() < deadline, response
                    time.sleep(0.1)
                assert response["error_code"] == 0, response
                offsets.append(response["base_offset"])
        return offsets

    def _produce(self, raw: Raw, batch: bytes) -> dict[str, int]:
        data = [{"index": self.partition, "records": batch}]
        topics = [{"name": self.topic, "partition_data": data}]
        response = ask(
            raw, _PRODUCE, _PRODUCE_VERSION, transactional_id=None, acks=-1, timeout=30_000, topic_data=topics
        )
        answer: dict[str, int] = response["responses"][0]["partition_responses"][0]
        return answer

    def batches(self, offset: int = 0) -> list[bytes]:
        """Return all batches from the offset up to the high watermark, byte for byte, including batches without
        records."""
        found: list[bytes] = []
        with Raw(self.address) as raw:
            while True:
                response = self._fetch(raw, offset)
                assert response["error_code"] == 0, response
                data: bytes = response["records"] or b""
                for batch in split(data):
                    found.append(batch)
                    offset = int.from_bytes(batch[:8], "big") + read_header(batch).last_offset_delta + 1
                if offset >= response["high_watermark"] or not data:
                    return found

    def _fetch(self, raw: Raw, offset: int) -> dict[str, Any]:
        partition = {
            "partition": self.partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 24,
        }
        response = ask(
            raw,
            _FETCH,
            _FETCH_VERSION,
            replica_id=-1,
            max_wait=500,
            min_bytes=1,
            max_bytes=1 << 24,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": self.topic, "partitions": [partition]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        answer: dict[str, int | bytes] = response["responses"][0]["partitions"][0]
        return answer

    def records(self, offset: int = 0) -> list[Stored]:
        """Return all records from the offset on."""
        return records_of(self.batches(offset), offset)


class CleanedLog(BatchLog):
    """A classic topic with one partition and `cleanup.policy=compact`, on one broker."""

    def __init__(self, stack: Stack, label: str, *, configs: Mapping[str, str] | None = None, node: int = NODE) -> None:
        """Apply `configs` on top of the topic configs that let the cleaner clean everything as soon as possible."""
        topic = f"{label}-cleaned-{uuid.uuid4().hex[:6]}"
        wanted = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": ALWAYS_DIRTY,
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "segment.ms": str(2**53),
            "min.insync.replicas": "1",
            "message.timestamp.after.max.ms": str(2**62),
            **(configs or {}),
        }
        create_topic(stack, topic, CLASSIC, configs=wanted, assignment=[[node]])
        super().__init__(stack.kafka.address(node), topic)
        self._checkpoint = stack.log_directory(node) / CHECKPOINT
        self.seals: list[bytes] = []
        """Batches in the order of their append."""
        self.cleaned_to = 0
        """Offset before which everything has been cleaned."""

    def clean(self, *, timestamp_ms: int | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
        """Seal the log and wait until the cleaner has cleaned it; return the offset before which all is cleaned.

        `timestamp_ms` is the seal's timestamp; None means now. May be called again when nothing is new except the last
        seal. Tombstones need this second run: the first one only sets the time from which they may be removed.
        """
        seal = seal_batch(len(self.seals), int(time.time() * 1000) if timestamp_ms is None else timestamp_ms)
        (offset,) = self.produce([seal])
        self.seals.append(seal)
        deadline = time.monotonic() + timeout_seconds
        while (cleaned := self.checkpoint()) < offset:
            assert time.monotonic() < deadline, f"{self.topic} is cleaned up to {cleaned}, not to {offset}"
            time.sleep(0.02)
        self.cleaned_to = offset
        return offset

    def checkpoint(self) -> int:
        """Return how far the cleaner has come according to its checkpoint; 0 if it has not started."""
        try:
            lines = self._checkpoint.read_text().splitlines()[2:]
        except FileNotFoundError:
            return 0
        found = {(topic, int(partition)): int(offset) for topic, partition, offset in map(str.split, lines)}
        return found.get((self.topic, self.partition), 0)


def split(data: bytes) -> Iterator[bytes]:
    """Split the records of a Fetch into batches; a batch that is cut at the end is left out."""
    while len(data) > 12 and len(data) >= (length := read_header(data).length):
        yield data[:length]
        data = data[length:]


def records_of(batches: Iterable[bytes], offset: int = 0) -> list[Stored]:
    """Return the records of batches, from the offset on."""
    return [
        Stored(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
        for batch in batches
        for record in DefaultRecordBatch(batch)
        if record.offset >= offset
    ]
