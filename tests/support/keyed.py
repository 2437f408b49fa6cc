"""Write records with keys to diskless logs, as producers would, and read them back with an independent decoder."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from pipeline.logs import rows_of_log
from pipeline.reading import coalesce, fetch_ranges, row_batches
from proxy.config import Settings
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import SegmentBuilder
from proxy.inspection.stores import Stores, open_stores
from proxy.records.batches import HEADER_BYTES, read_header
from tests.batches import ENCODE, make_timed_batch
from tests.support.records import Stored
from tests.support.segments import commit_segment

START_MS = 1_700_000_000_000


class Keyed(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Producer(NamedTuple):
    """The producer fields of a batch header."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NOBODY = Producer()


def keyed_batch(
    records: Sequence[Keyed], *, codec: int = 0, producer: Producer = NOBODY, timestamp_ms: int = START_MS
) -> bytearray:
    """Build one v2 batch as a producer sends it: records one millisecond apart, base offset 0."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 64 << 20)
    for place, record in enumerate(records):
        added = builder.append(place, timestamp_ms + place, record.key, record.value, list(record.headers))
        assert added is not None
    return bytearray(builder.build())


def foreign_header_batch(records: Sequence[Keyed], *, codec: int = 0) -> bytearray:
    """Build a batch like `keyed_batch`, but with a header key in each record that is not UTF-8. The other writer cannot
    do this."""
    plain = keyed_batch([record._replace(headers=(("??", b"header"),)) for record in records])
    packed = ENCODE[codec](bytes(plain[HEADER_BYTES:]).replace(b"??", b"\xff?"))
    return make_timed_batch([START_MS + place for place in range(len(records))], codec=codec, payload=packed)


async def write_batches(
    settings: Settings, topic: DisklessTopic, batches: Iterable[tuple[int, bytearray]], *, log_append_time: bool = False
) -> bytes:
    """Write and commit one segment of batches, each with its partition; return the segment's UUID."""
    async with open_stores(settings) as stores:
        return await commit_batches(stores, topic, batches, log_append_time=log_append_time)


async def commit_batches(
    stores: Stores, topic: DisklessTopic, batches: Iterable[tuple[int, bytearray]], *, log_append_time: bool = False
) -> bytes:
    """Do the same as `write_batches`, in stores that are already open."""
    builder = SegmentBuilder()
    for partition, batch in batches:
        view = memoryview(batch)
        builder.add(topic.topic_id, partition, view, read_header(batch), log_append_time=log_append_time)
    return await commit_segment(stores, builder)


async def rows_in(stores: Stores, topic: DisklessTopic, partition: int = 0) -> list[Row]:
    """Return all rows of a log."""
    return [row async for page in rows_of_log(stores.coordinator, topic.topic_id, partition) for row in page]


async def log_batches(settings: Settings, topic: DisklessTopic, partition: int = 0) -> list[bytes]:
    """Return all batches of a log as a reader gets them."""
    async with open_stores(settings) as stores:
        rows = await rows_in(stores, topic, partition)
        found: dict[int, list[bytes]] = {}
        async for range_, data in fetch_ranges(stores.storage, coalesce(rows), gets=2, max_bytes_in_flight=1 << 24):
            assert not isinstance(data, Exception), data
            for place in range_.places:
                run, bounds = row_batches(data, range_, rows[place])
                found[place] = [bytes(run[one.position : one.position + one.length]) for one in bounds]
    return [batch for place in sorted(found) for batch in found[place]]


def decoded(batches: Iterable[bytes]) -> list[Stored]:
    """Decode the records of batches with a decoder that is not this project's."""
    return [
        Stored(record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
        for batch in batches
        for record in DefaultRecordBatch(batch)
    ]


async def log_records(settings: Settings, topic: DisklessTopic, partition: int = 0) -> list[Stored]:
    """Return all records of a log."""
    return decoded(await log_batches(settings, topic, partition))


def last_of_each_key(records: Iterable[Stored], *, tombstones: bool = True) -> list[Stored]:
    """Return what compaction must keep: the last record of each key, by offset."""
    last = {record.key: record for record in sorted(records) if record.key is not None}
    return sorted(record for record in last.values() if tombstones or record.value is not None)


def unique(name: str) -> str:
    """Return a topic name that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:8]}"
