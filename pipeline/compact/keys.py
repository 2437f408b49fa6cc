"""Each key and the offset of its record, for Spark to find the last one of each: the first half of a task's work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pyarrow

from pipeline.aborted import Aborted
from pipeline.compact.chunk import Unread, unread_of
from pipeline.compact.markers import LastEvents, Place, note_event
from pipeline.compact.plan import Chunk, Span
from pipeline.compact.spans import Found, ReadRow, Work, iterate, read_rows, rows_now
from pipeline.logs import LogGone
from pipeline.reading import RowUnreadable
from pipeline.source.decoding import decode, no_garbage_collection
from pipeline.stores import opened
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.inspection.stores import Stores
from proxy.records.batches import BatchBounds, RecordsError, read_header
from proxy.storage.interface import StorageError

SCHEMA = "log int, key binary, code bigint"
"""Columns of a key; `code` is offset << 1, | 1 if the record is a tombstone."""
_MAX_KEYS = 50_000
_MAX_KEY_BYTES = 8_388_608
"""Maximum bytes of keys that are handed to Spark at a time."""
_TRIES = 3
"""At rows whose objects are gone: what rewrote them may be rewritten again."""

Keys = dict[bytes, int]
Events = dict[Place, LastEvents]


def key_batches(work: Work, chunk: Chunk, note: Callable[[int, Unread], None], events: Events) -> Iterator[Any]:
    """Yield all keys of a chunk's records, as Arrow record batches of SCHEMA; a frequent key may be left out in part.

    `note` is called with each log that could not be read completely. `events` gets those of the chunk's spans.
    """
    for log, latest in iterate(_keys_of_chunk(work, chunk, events)):
        if isinstance(latest, Unread):
            note(log, latest)
            continue
        yield pyarrow.record_batch(
            [
                pyarrow.array([log] * len(latest), pyarrow.int32()),
                pyarrow.array(latest.keys(), pyarrow.binary()),
                pyarrow.array(latest.values(), pyarrow.int64()),
            ],
            names=["log", "key", "code"],
        )


async def _keys_of_chunk(work: Work, chunk: Chunk, events: Events) -> AsyncGenerator[tuple[int, Keys | Unread], None]:
    try:
        async with (
            opened(work.settings, patient=True) as stores,
            aclosing(keys_in(stores, work, chunk, events)) as found,
        ):
            async for one in found:
                yield one
    except StorageError as error:
        for span in chunk:  # the others are finished all the same
            yield span.log, Unread("storage_error", f"its objects can't be read: {error}")


async def keys_in(
    stores: Stores, work: Work, chunk: Chunk, events: Events
) -> AsyncGenerator[tuple[int, Keys | Unread], None]:
    """Logs and keys as in SCHEMA, a bounded number at a time; and what of them can't be read. `events` is filled."""
    latest: dict[int, Keys] = {}
    count = size_bytes = 0
    aborted: dict[Span, Aborted] = {}
    async for span, read in _reads(stores, work, chunk, aborted):
        if isinstance(read, RowUnreadable):
            yield span.log, unread_of(read)
            continue
        for batch in read.bounds:
            run = read.run[batch.position : batch.position + batch.length]
            if span.start <= batch.base_offset < span.end:
                note_event(events.setdefault(Place(span.log, span.start), {}), read_header(run), batch.base_offset)
            try:
                found = keys_of(run, span, aborted[span])
            except RecordsError as error:
                yield span.log, unread_of(_corrupt(read.row, batch, error))
                continue
            # Rows come in the order in which their objects are read, which is not that of their offsets.
            of_log = latest.setdefault(span.log, {})
            for key, code in found.items():
                of_log[key] = max(code, of_log.get(key, code))
            count += len(found)
            size_bytes += sum(map(len, found))
            if count >= _MAX_KEYS or size_bytes >= _MAX_KEY_BYTES:
                for log, keys in latest.items():
                    yield log, keys
                latest, count, size_bytes = {}, 0, 0
    for log, keys in latest.items():
        yield log, keys


async def _reads(
    stores: Stores, work: Work, chunk: Chunk, aborted: dict[Span, Aborted]
) -> AsyncIterator[tuple[Span, ReadRow | RowUnreadable]]:
    """Yield all rows of the chunk, though they may be replaced meanwhile; none of logs that are gone.

    `aborted` gets the aborted transactions of each span before its rows come.
    """
    known: dict[Span, frozenset[AbortedTransaction]] = {}

    async def rows_of(span: Span) -> list[Row]:
        there = await _rows(stores, work, span)
        known[span] = known.get(span, frozenset()) | there.aborted
        aborted[span] = Aborted(known[span])
        return there.rows

    found = [(span, row) for span in chunk for row in await rows_of(span)]
    for tries_left in reversed(range(_TRIES)):
        missing: list[tuple[Span, RowUnreadable]] = []
        async for place, read in read_rows(stores.storage, [row for _, row in found]):
            span = found[place][0]
            if isinstance(read, RowUnreadable) and read.kind == "missing" and tries_left:
                missing.append((span, read))
            else:
                yield span, read
        found = []
        for span in dict.fromkeys(span for span, _ in missing):
            errors = [error for other, error in missing if other == span]
            now = await rows_of(span)
            ranges = [(error.row.base_offset, error.row.last_offset) for error in errors if error.row is not None]
            for error in errors:
                if error.row in now:
                    yield span, error
            if not any(error.row in now for error in errors):
                found += [(span, row) for row in now if _overlaps(row, ranges)]
        if not found:
            return


async def _rows(stores: Stores, work: Work, span: Span) -> Found:
    try:
        return await rows_now(stores.coordinator, work.logs[span.log], span)
    except LogGone:
        return Found([], frozenset())


def _overlaps(row: Row, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(row.base_offset <= last and row.last_offset >= first for first, last in ranges)


def keys_of(batch: bytearray | memoryview, span: Span, aborted: Aborted) -> Keys:
    """Return the keys of a batch's records within the span, each with the code of its last record; none of control
    batches and of aborted transactions. Raises RecordsError."""
    header = read_header(batch)
    base_offset = int.from_bytes(batch[:8], "big")
    if header.is_control or not header.record_count:
        return {}
    if header.is_transactional and aborted.has(header.producer_id, base_offset):
        return {}
    found: Keys = {}
    with no_garbage_collection():
        records, _ = decode(memoryview(batch), header, base_offset)
        for record in records:
            if record.key is not None and span.start <= record.offset < span.end:
                found[record.key] = record.offset << 1 | (record.value is None)
    return found


def _corrupt(row: Row, batch: BatchBounds, error: RecordsError) -> RowUnreadable:
    text = f"batch of offsets {batch.base_offset} to {batch.last_offset}: {error}"
    return RowUnreadable("corrupt", None, text).of_row(row)
