"""Apache Kafka's own log cleaner, at work on a classic topic: what it leaves is what compaction has to leave.

    with quick_cleaner(stack):
        cleaned = CleanedLog(stack, "label", configs={"delete.retention.ms": "0"})
        cleaned.produce(batches)       # exact bytes: producers, codecs, timestamps and headers as the test made them
        cleaned.clean()                # seals all of it, and waits until the cleaner has been through it
        cleaned.records(), cleaned.batches()

The cleaner leaves the active segment alone, and a segment ends only by an append that does not fit into it. So `clean`
appends one batch, the *seal*, which is as large as a segment; everything before it can be cleaned then. A log that is
to be compared has to get the same seals at the same places (`seal_batch`, each with a key of its own). The seal
of the last `clean` lies in the active segment: compare what lies before `cleaned_to`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from proxy.demo.stack import Stack
from proxy.records.batches import read_header
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.records import Stored
from tests.support.topics import CLASSIC, create_topic

NODE = 1
"""The broker that has the one replica."""
BACKOFF_MS = 50
SEGMENT_BYTES = 65_536
"""No batch may be larger; every seal is as large."""
ALWAYS_DIRTY = "0"
TIMEOUT_SECONDS = 90.0
CHECKPOINT = "cleaner-offset-checkpoint"

_PRODUCE, _PRODUCE_VERSION = 0, 9
_FETCH, _FETCH_VERSION = 1, 11
_NOT_THERE_YET = {3, 6}
"""Unknown topic or partition, not the leader: brokers hear of a topic one after the other."""


@contextmanager
def quick_cleaner(stack: Stack, node: int = NODE) -> Iterator[None]:
    """Let the cleaner of a broker look for work all the time; it looks every 15 s by itself."""
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
    """The batch that ends a segment: SEGMENT_BYTES in all, one record with the key `seal-<number>`."""
    size = SEGMENT_BYTES - 200
    while True:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * SEGMENT_BYTES)
        assert builder.append(0, timestamp_ms, b"seal-%d" % number, b"\0" * size, []) is not None
        batch = bytes(builder.build())
        if len(batch) == SEGMENT_BYTES:
            return batch
        size += SEGMENT_BYTES - len(batch)


class BatchLog:
    """One partition of any topic, written and read by the batch, at one listener."""

    def __init__(self, address: str, topic: str, partition: int = 0) -> None:
        self.address = address
        self.topic = topic
        self.partition = partition

    def produce(self, batches: Iterable[bytes | bytearray], *, timeout_seconds: float = TIMEOUT_SECONDS) -> list[int]:
        """Append one batch after the other; their base offsets. An error of any is raised, as AssertionError."""
        deadline = time.monotonic() + timeout_seconds
        offsets = []
        with Raw(self.address) as raw:
            for batch in batches:
                while (told := self._produce(raw, bytes(batch)))["error_code"] in _NOT_THERE_YET:
                    assert time.monotonic() < deadline, told
                    time.sleep(0.1)
                assert told["error_code"] == 0, told
                offsets.append(told["base_offset"])
        return offsets

    def _produce(self, raw: Raw, batch: bytes) -> dict[str, int]:
        data = [{"index": self.partition, "records": batch}]
        topics = [{"name": self.topic, "partition_data": data}]
        told = ask(raw, _PRODUCE, _PRODUCE_VERSION, transactional_id=None, acks=-1, timeout=30_000, topic_data=topics)
        answer: dict[str, int] = told["responses"][0]["partition_responses"][0]
        return answer

    def batches(self, offset: int = 0) -> list[bytes]:
        """All batches from the offset on up to the high watermark, byte for byte; also those without records."""
        found: list[bytes] = []
        with Raw(self.address) as raw:
            while True:
                told = self._fetch(raw, offset)
                assert told["error_code"] == 0, told
                data: bytes = told["records"] or b""
                for batch in split(data):
                    found.append(batch)
                    offset = int.from_bytes(batch[:8], "big") + read_header(batch).last_offset_delta + 1
                if offset >= told["high_watermark"] or not data:
                    return found

    def _fetch(self, raw: Raw, offset: int) -> dict[str, int | bytes]:
        partition = {
            "partition": self.partition,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 24,
        }
        told = ask(
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
        answer: dict[str, int | bytes] = told["responses"][0]["partitions"][0]
        return answer

    def records(self, offset: int = 0) -> list[Stored]:
        """All records from the offset on."""
        return records_of(self.batches(offset), offset)


class CleanedLog(BatchLog):
    """A classic topic of one partition with `cleanup.policy=compact`, on one broker."""

    def __init__(self, stack: Stack, label: str, *, configs: Mapping[str, str] | None = None, node: int = NODE) -> None:
        """`configs`: of the topic, over those that let the cleaner clean all there is, as soon as it may."""
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
        """As they were appended."""
        self.cleaned_to = 0
        """The offset before which everything has been cleaned."""

    def clean(self, *, timestamp_ms: int | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> int:
        """Seal the log and wait until the cleaner has been through it; the offset before which all is cleaned.

        `timestamp_ms`: of the seal, now where None. May be called again when nothing is new but the last seal: that is
        a further run of the cleaner, which tombstones need (the first one only says from when on they may go).
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
        """How far the cleaner says that it has come; 0 where it has not begun."""
        try:
            lines = self._checkpoint.read_text().splitlines()[2:]
        except FileNotFoundError:
            return 0
        found = {(topic, int(partition)): int(offset) for topic, partition, offset in map(str.split, lines)}
        return found.get((self.topic, self.partition), 0)


def split(data: bytes) -> Iterator[bytes]:
    """The batches of a Fetch's records; one that is cut at the end is left out."""
    while len(data) > 12 and len(data) >= (length := read_header(data).length):
        yield data[:length]
        data = data[length:]


def records_of(batches: Iterable[bytes], offset: int = 0) -> list[Stored]:
    """The records of batches, from the offset on."""
    return [
        Stored(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
        for batch in batches
        for record in DefaultRecordBatch(batch)
        if record.offset >= offset
    ]
