"""The part of a batch that compaction keeps: the decisions of Kafka's log cleaner. Sans-io.

This follows `Cleaner.cleanInto`, `Cleaner.shouldRetainRecord` and `MemoryRecords.filterTo` of Kafka 4.x. The last
records of the keys are passed in as ascending *survivors*: offset << 1, | 1 if the record is a tombstone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from pipeline.aborted import NONE_ABORTED, Aborted
from pipeline.compact.records import NO_TIMESTAMP, batch_of, delete_horizon_ms, emptied, kept_of, moved, records_of
from proxy.coordinator.packing import LAST_SEQUENCE
from proxy.records.batches import BatchBounds, BatchHeader, read_header

Buffer = bytes | bytearray | memoryview


class Cleaning(NamedTuple):
    """Values that hold for one partition in one run."""

    now_ms: int
    """Milliseconds since 1970."""
    delete_retention_ms: int
    """`delete.retention.ms`: how long a tombstone stays after the run that first saw it."""
    end_offset: int
    """Exclusive, of all that is looked at: the batch that ends there is kept, empty or not, so that the end stays."""
    last_sequences: Collection[tuple[int, int, int]] = ()
    """Producer ID, epoch and last sequence of the known producers. The batch that holds such a sequence is kept, empty
    or not. For a producer that has only a marker, the sequence is -1."""
    aborted: Aborted = NONE_ABORTED
    """Aborted transactions, whose records go."""


class Event(NamedTuple):
    """A batch of a transaction, or a marker, as it was before the run."""

    offset: int
    producer_id: int
    is_marker: bool
    is_empty: bool
    """True for a marker whose record an earlier run has removed."""


class Cleaned(NamedTuple):
    """The rest of one row's batches."""

    data: bytes
    """Bytes of the batches; empty if nothing is left."""
    last_offset: int
    """Last offset of the last batch in it; -1 if there is none."""
    max_timestamp_ms: int
    """Newest time of all batches in it, by their headers; without meaning if there is none."""
    records_before: int
    records: int
    tombstones_removed: int
    changed: bool
    """True if `data` differs from the original."""
    events: tuple[Event, ...] = ()
    """Batches of transactions and markers before the run, in the order of their offsets."""
    ended: tuple[int, ...] = ()
    """Offsets of markers of aborted transactions that were removed."""


def clean_row(run: Buffer, bounds: Sequence[BatchBounds], survivors: Sequence[int], cleaning: Cleaning) -> Cleaned:
    """Return the rest of a row's batches, with all markers of transactions: `markers.py` decides about these.

    `run` has their bytes, with offsets in place. Raises RecordsError.
    """
    parts: list[Buffer] = []
    last_offset = -1
    newest_ms: int | None = None
    before = after = tombstones = 0
    changed = False
    events: list[Event] = []
    with memoryview(run) as view:
        for batch, kept in _with_survivors(bounds, survivors):
            data = view[batch.position : batch.position + batch.length]
            header = read_header(data)
            if header.is_transactional:
                is_empty = header.is_control and not header.record_count
                events.append(Event(batch.base_offset, header.producer_id, header.is_control, is_empty))
            left, removed = clean_batch(data, header, batch, kept, cleaning)
            before += 0 if header.is_control else header.record_count
            tombstones += removed
            changed = changed or left is not data
            if left is not None:
                header = read_header(left)
                after += 0 if header.is_control else header.record_count
                newest_ms = header.max_timestamp_ms if newest_ms is None else max(newest_ms, header.max_timestamp_ms)
                last_offset = batch.last_offset
                parts.append(left)
        newest_ms = NO_TIMESTAMP if newest_ms is None else newest_ms
        return Cleaned(b"".join(parts), last_offset, newest_ms, before, after, tombstones, changed, tuple(events))


def clean_batch(
    batch: memoryview, header: BatchHeader, bounds: BatchBounds, survivors: Sequence[int], cleaning: Cleaning
) -> tuple[memoryview | bytes | None, int]:
    """Return the rest of a batch and the number of removed tombstones; the batch itself if unchanged, None if removed.

    `survivors` are those within its offsets. Control batches are left as they are. Raises RecordsError.
    """
    if header.is_control:
        return batch, 0
    if header.is_transactional and cleaning.aborted.has(header.producer_id, bounds.base_offset):
        return _without_records(batch, header, bounds, cleaning), 0
    horizon_ms = delete_horizon_ms(header)
    expired = horizon_ms is not None and horizon_ms <= cleaning.now_ms
    tombstones = {code >> 1 for code in survivors if code & 1}
    kept = {code >> 1 for code in survivors} - (tombstones if expired else set())
    removed = len(tombstones) if expired else 0
    if not kept:
        return _without_records(batch, header, bounds, cleaning), removed
    if len(kept) == header.record_count and not tombstones:
        return batch, 0
    base_offset = bounds.base_offset
    left = kept_of(records_of(batch, header), header.record_count, {offset - base_offset for offset in kept})
    if not left.records:
        return _without_records(batch, header, bounds, cleaning), removed
    if tombstones and horizon_ms is None:
        set_ms = cleaning.now_ms + cleaning.delete_retention_ms
        with_horizon, found = moved(left, set_ms - header.base_timestamp_ms)
        if found:
            return batch_of(batch, header, with_horizon, horizon_ms=set_ms), removed
    if left.records == header.record_count:
        return batch, removed
    return batch_of(batch, header, left, horizon_ms=horizon_ms), removed


def _without_records(
    batch: memoryview, header: BatchHeader, bounds: BatchBounds, cleaning: Cleaning
) -> memoryview | bytes | None:
    """Return the bare header if it is needed for a producer's last sequence or the end of what was looked at."""
    is_last = bounds.last_offset + 1 == cleaning.end_offset
    if not is_last and last_sequence(header) not in cleaning.last_sequences:
        return None
    return batch if header.record_count == 0 else emptied(batch, header)


def last_sequence(header: BatchHeader) -> tuple[int, int, int]:
    """Return the sequence as in `Cleaning.last_sequences`, for a marker -1; for a batch without a producer one that is
    not in there."""
    has_sequence = header.producer_id >= 0 and not header.is_control
    last = (header.base_sequence + header.last_offset_delta) & LAST_SEQUENCE if has_sequence else -1
    return header.producer_id, header.producer_epoch, last


def _with_survivors(
    bounds: Sequence[BatchBounds], survivors: Sequence[int]
) -> Iterator[tuple[BatchBounds, Sequence[int]]]:
    at = bisect_left(survivors, bounds[0].base_offset << 1) if bounds else 0
    for batch in bounds:
        end = bisect_left(survivors, (batch.last_offset + 1) << 1, at)
        yield batch, survivors[at:end]
        at = end
