"""Offsets and timestamps of single records, because a lookup by time has to be exact. Sans-io; may take long.

This follows Kafka's `DefaultRecord` (length, attributes, timestamp delta, offset delta, …, each a signed varint except
the attributes) and `FileRecords.searchForTimestamp`. A batch whose records can't be read, or are too many, counts as a
whole, with the offset and maximum timestamp of its header: a reader that begins there misses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from proxy.diskless.kept_blocks import PatchedRun
from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records.batches import HEADER_BYTES, BatchBounds, BatchHeader, RecordsError, read_header
from proxy.records.compression import Buffer, CodecError, decompress
from proxy.records.varint import read_varint

_RECORDS_BETWEEN_LOOKS = 128
"""Number of records after which a search checks whether it has to end."""
MAX_RECORDS = 1_000_000
"""Maximum number of records of one row that are searched one by one: about a second. Four kilobytes may hold 19
million."""


class RecordTime(NamedTuple):
    """One record."""

    offset: int
    timestamp_ms: int


class SearchStopped(Exception):
    """No client waits for the result of the search any more."""


def _never() -> bool:
    return False


def first_since(
    run: PatchedRun,
    timestamp_ms: int,
    from_offset: int,
    *,
    max_batch_bytes: int,
    stopped: Callable[[], bool] = _never,
) -> RecordTime | None:
    """Return the first record of the run, from the offset on, that has the timestamp or a later one; None if none has.

    `max_batch_bytes` limits the total decompressed size of the searched batches. `stopped` is called now and then.
    Raises SearchStopped if it returns True.
    """
    search = _Search(run, from_offset, max_batch_bytes, stopped)
    for batch, header in _batches(run, from_offset):
        if header.max_timestamp_ms >= timestamp_ms:
            for record in search.records(batch, header):
                if record.timestamp_ms >= timestamp_ms:
                    return record
    return None


def newest(
    run: PatchedRun, from_offset: int, *, max_batch_bytes: int, stopped: Callable[[], bool] = _never
) -> RecordTime | None:
    """Return the first of those records of the run, from the offset on, that have the highest timestamp.

    The rest is as in `first_since`.
    """
    search = _Search(run, from_offset, max_batch_bytes, stopped)
    best: RecordTime | None = None
    # The sort is stable: of batches with the same maximum the first comes first.
    for batch, header in sorted(_batches(run, from_offset), key=lambda one: -one[1].max_timestamp_ms):
        if best is not None and header.max_timestamp_ms <= best.timestamp_ms:
            break
        for record in search.records(batch, header):
            if best is None or record.timestamp_ms > best.timestamp_ms:
                best = record
    return best


def is_compressed(run: PatchedRun) -> bool:
    """Return whether the records of any batch take more bytes than the run shows."""
    return any(read_header(run.data, batch.position).compression for batch in run.batches)


def record_times(batch: Buffer, max_batch_bytes: int) -> Iterator[RecordTime]:
    """The records of one v2 batch. With LogAppendTime all have the batch's maximum timestamp.

    Raises RecordsError (CORRUPT_MESSAGE) at the first record that can't be read.
    """
    header = read_header(batch, 0)
    yield from times_of(_decompressed(batch, header, max_batch_bytes), header, int.from_bytes(batch[:8], "big"))


def times_of(records: Buffer, header: BatchHeader, base_offset: int) -> Iterator[RecordTime]:
    """Yield the records of a batch whose `records` are decompressed.

    Raises RecordsError (CORRUPT_MESSAGE) at the first record that can't be read, and after the last one if there is
    more data than the header says.
    """
    at = 0
    try:
        for _ in range(header.record_count):
            length, start = read_varint(records, at)
            timestamp_delta, at = read_varint(records, start + 1)
            offset_delta, at = read_varint(records, at)
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


def _decompressed(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    """Raises RecordsError."""
    try:
        return decompress(header.compression, memoryview(batch)[HEADER_BYTES : header.length], max_bytes)
    except CodecError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error


class _Search:
    """The records of a run's batches, as long as the decompressed data stays within bounds."""

    def __init__(self, run: PatchedRun, from_offset: int, max_bytes: int, stopped: Callable[[], bool]) -> None:
        self._run = run
        self._from_offset = from_offset
        self._left_bytes = max_bytes
        self._left_records = MAX_RECORDS
        self._stopped = stopped

    def records(self, batch: BatchBounds, header: BatchHeader) -> Iterator[RecordTime]:
        """Yield the records of a batch. Raises SearchStopped."""
        data = self._run.data[batch.position : batch.position + batch.length]
        try:
            if self._stopped():
                raise SearchStopped
            if header.record_count > self._left_records:
                raise RecordsError(CORRUPT_MESSAGE, f"{header.record_count} records are too many to be searched")
            self._left_records -= header.record_count
            records = _decompressed(data, header, self._left_bytes)
            self._left_bytes -= len(records)
            for count, record in enumerate(times_of(records, header, batch.base_offset)):
                if count % _RECORDS_BETWEEN_LOOKS == 0 and self._stopped():
                    raise SearchStopped
                if record.offset >= self._from_offset:
                    yield record
        except RecordsError:
            yield RecordTime(max(batch.base_offset, self._from_offset), header.max_timestamp_ms)
