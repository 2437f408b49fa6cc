"""Offsets and timestamps of single records, which a lookup by time has to be exact to. Sans-io; may take long.

Follows Kafka's `DefaultRecord` (length, attributes, timestamp delta, offset delta, …, each a signed varint but the
attributes) and `FileRecords.searchForTimestamp`. A batch whose records can't be read is taken as a whole, with the
offset and maximum timestamp that its header tells: a reader who begins there misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proxy.cache import PatchedRun
from proxy.compression import Buffer, CodecError, decompress
from proxy.records import CORRUPT_MESSAGE, HEADER_BYTES, BatchBounds, BatchHeader, RecordsError, read_header

_LONGEST_VARINT_BITS = 70


class RecordTime(NamedTuple):
    """One record."""

    offset: int
    timestamp_ms: int


def first_since(run: PatchedRun, timestamp_ms: int, from_offset: int, *, max_batch_bytes: int) -> RecordTime | None:
    """The first record of the run, from the offset on, that has the timestamp or a later one; None where none has.

    `max_batch_bytes`: what one batch may become when it is decompressed.
    """
    for batch, header in _batches(run, from_offset):
        if header.max_timestamp_ms >= timestamp_ms:
            for record in _records(run, batch, header, from_offset, max_batch_bytes):
                if record.timestamp_ms >= timestamp_ms:
                    return record
    return None


def newest(run: PatchedRun, from_offset: int, *, max_batch_bytes: int) -> RecordTime | None:
    """The first of those records of the run, from the offset on, that have the highest timestamp."""
    best: RecordTime | None = None
    # The sort is stable: of batches with the same maximum the first comes first.
    for batch, header in sorted(_batches(run, from_offset), key=lambda one: -one[1].max_timestamp_ms):
        if best is not None and header.max_timestamp_ms <= best.timestamp_ms:
            break
        for record in _records(run, batch, header, from_offset, max_batch_bytes):
            if best is None or record.timestamp_ms > best.timestamp_ms:
                best = record
    return best


def record_times(batch: Buffer, max_batch_bytes: int) -> Iterator[RecordTime]:
    """The records of one v2 batch. With LogAppendTime all have the batch's maximum timestamp.

    Raises RecordsError (CORRUPT_MESSAGE) at the first record that can't be read.
    """
    header = read_header(batch, 0)
    try:
        records = decompress(header.compression, memoryview(batch)[HEADER_BYTES : header.length], max_batch_bytes)
    except CodecError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error
    yield from times_of(records, header, int.from_bytes(batch[:8], "big"))


def times_of(records: Buffer, header: BatchHeader, base_offset: int) -> Iterator[RecordTime]:
    """The records of a batch whose `records` are decompressed.

    Raises RecordsError (CORRUPT_MESSAGE) at the first record that can't be read, and behind the last one where there is
    more than the header says.
    """
    at = 0
    try:
        for _ in range(header.record_count):
            length, start = _varint(records, at)
            timestamp_delta, at = _varint(records, start + 1)
            offset_delta, at = _varint(records, at)
            if not at <= start + length <= len(records):
                raise RecordsError(CORRUPT_MESSAGE, f"a record of {length} bytes at {start} of {len(records)}")
            at = start + length
            own_ms = header.base_timestamp_ms + timestamp_delta
            yield RecordTime(base_offset + offset_delta, header.max_timestamp_ms if header.timestamp_type else own_ms)
    except IndexError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error
    if at != len(records):
        raise RecordsError(CORRUPT_MESSAGE, f"{len(records) - at} bytes follow the last record of a batch")


def _batches(run: PatchedRun, from_offset: int) -> Iterator[tuple[BatchBounds, BatchHeader]]:
    for batch in run.batches:
        if batch.last_offset >= from_offset:
            yield batch, read_header(run.data, batch.position)


def _records(
    run: PatchedRun, batch: BatchBounds, header: BatchHeader, from_offset: int, max_batch_bytes: int
) -> Iterator[RecordTime]:
    data = run.data[batch.position : batch.position + batch.length]
    try:
        for record in record_times(data, max_batch_bytes):
            if record.offset >= from_offset:
                yield record
    except RecordsError:
        yield RecordTime(max(batch.base_offset, from_offset), header.max_timestamp_ms)


def _varint(data: Buffer, at: int) -> tuple[int, int]:
    """A signed varint and where it ends. Raises IndexError at the end of the data, RecordsError after 64 bits."""
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    while byte & 0x80:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LONGEST_VARINT_BITS:
            raise RecordsError(CORRUPT_MESSAGE, f"a number at {at} does not end")
    return (value >> 1) ^ -(value & 1), at + 1
