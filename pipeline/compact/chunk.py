"""One task of a compaction: the rows of a chunk become one object of what is left of them, and the swaps that put it
in their place. The driver has the swaps done, so that those of one log are done in their order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

from pipeline.aborted import Aborted
from pipeline.compact.markers import without_markers
from pipeline.compact.plan import Chunk, Log, Span
from pipeline.compact.rewrite import Cleaned, Cleaning, clean_row
from pipeline.compact.spans import ReadRow, Work, read_rows, rows_now
from pipeline.logs import LogGone, patiently
from pipeline.reading import RowUnreadable, finding_of
from pipeline.stores import opened
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_rewriting import MAX_ENDED_PER_SWAP, MAX_ROWS_PER_SWAP, Swap
from proxy.coordinator.packing import exact
from proxy.diskless.wal.segment import MergedBuilder, segment_key
from proxy.inspection.stores import Stores
from proxy.records.batches import RecordsError

ROW_BYTES = 1 << 20
"""A new row takes no more, unless a single old one leaves more."""


Survivors = Mapping[int, Sequence[int]]
"""Per log (its place in the plan) what `rewrite` goes by, of the offsets of one chunk."""


Before = Mapping[int, Collection[int]]
"""Per log the producers that have batches of a transaction before the chunk's span whose marker is not before it."""


class Outcome(Enum):
    """The outcome of a span."""

    REWRITTEN = "rewritten"
    UNCHANGED = "unchanged"
    """Nothing of it has to go."""
    CHANGED = "changed"
    """Its rows are not those any more that were planned with."""
    GONE = "gone"
    """Its log does not live any more."""
    UNREADABLE = "unreadable"


class Unread(NamedTuple):
    """A row that can't be read."""

    kind: str
    """Kind as the audit names it."""
    text: str
    """Object, position and offsets."""


class SpanAnswer(NamedTuple):
    """The result of a task for one span."""

    span: Span
    outcome: Outcome
    swaps: tuple[Swap, ...] = ()
    """Swaps in the order in which they are to be done."""
    unread: Unread | None = None
    """Why it can't be read."""


@dataclass
class ChunkAnswer:
    """The result of a task for its chunk."""

    spans: list[SpanAnswer] = field(default_factory=list)
    bytes_read: int = 0
    """Bytes of batches that were read."""
    bytes_written: int = 0
    """Bytes of the object; 0 if none was made."""
    records_before: int = 0
    records_after: int = 0
    bytes_after: int = 0
    """Bytes of the batches that were rewritten or left as they are."""
    tombstones_removed: int = 0


async def rewrite_chunk(work: Work, chunk: Chunk, survivors: Survivors, before: Before) -> ChunkAnswer:
    """Upload what is left of a chunk, except for a dry run. Raises StorageError, ShardFenced,
    CoordinatorUnavailable."""
    async with opened(work.settings, patient=True) as stores:
        return await rewrite_in(stores, work, chunk, survivors, before)


async def rewrite_in(stores: Stores, work: Work, chunk: Chunk, survivors: Survivors, before: Before) -> ChunkAnswer:
    """Do the same as `rewrite_chunk`, with open stores."""
    answer = ChunkAnswer()
    builder = MergedBuilder()
    found = [one async for one in _found(stores, work, chunk, answer)]
    cleaned = await _cleaned(stores, found, survivors, answer)
    for (span, rows, cleaning), of_span in zip(found, cleaned, strict=True):
        if isinstance(of_span, RowUnreadable):
            outcome = await _why_unreadable(stores, work.logs[span.log], span, rows)
            unread = unread_of(of_span) if outcome is Outcome.UNREADABLE else None
            answer.spans.append(SpanAnswer(span, outcome, unread=unread))
            continue
        of_span = list(without_markers(of_span, before.get(span.log, ()), cleaning.aborted, cleaning))
        answer.records_before += sum(one.records_before for one in of_span)
        answer.records_after += sum(one.records for one in of_span)
        answer.bytes_after += sum(len(one.data) for one in of_span)
        if not any(one.changed for one in of_span):
            answer.spans.append(SpanAnswer(span, Outcome.UNCHANGED))
            continue
        answer.tombstones_removed += sum(one.tombstones_removed for one in of_span)
        swaps = tuple(swaps_of(work.logs[span.log], rows, of_span, builder))
        answer.spans.append(SpanAnswer(span, Outcome.REWRITTEN, swaps))
    if builder.rows:
        answer.bytes_written = builder.size_bytes
        if not work.dry_run:
            await stores.storage.upload(segment_key(builder.segment), builder.data, builder.size_bytes)
    answer.spans.sort(key=lambda one: (one.span.log, one.span.start))
    return answer


async def _found(
    stores: Stores, work: Work, chunk: Chunk, answer: ChunkAnswer
) -> AsyncIterator[tuple[Span, list[Row], Cleaning]]:
    """The spans that are as they were planned; of the others, the answer."""
    for span in chunk:
        log = work.logs[span.log]
        try:
            rows, aborted = await rows_now(stores.coordinator, log, span)
        except LogGone:
            rows, aborted = [], frozenset()
        producers = await patiently(partial(stores.coordinator.producers, log.topic_id, log.partition))
        if producers is None:
            answer.spans.append(SpanAnswer(span, Outcome.GONE))
            continue
        if not rows or (rows[0].base_offset < span.start or rows[-1].last_offset >= span.end):
            # Where there are none any more they were trimmed: there is nothing to do.
            answer.spans.append(SpanAnswer(span, Outcome.CHANGED if rows else Outcome.UNCHANGED))
            continue
        last = frozenset((one.producer_id, one.producer_epoch, one.last_sequence) for one in producers)
        yield span, rows, Cleaning(work.now_ms, log.delete_retention_ms, log.end_offset, last, Aborted(aborted))


async def _cleaned(
    stores: Stores,
    found: Sequence[tuple[Span, list[Row], Cleaning]],
    survivors: Survivors,
    answer: ChunkAnswer,
) -> list[list[Cleaned] | RowUnreadable]:
    """Return, per span, the rest of each row; for an unreadable row, the reason."""
    places = [(number, place) for number, (_, rows, _) in enumerate(found) for place in range(len(rows))]
    rows = [found[number][1][place] for number, place in places]
    left: list[dict[int, Cleaned]] = [{} for _ in found]
    errors: dict[int, RowUnreadable] = {}
    async for at, read in read_rows(stores.storage, rows):
        number, place = places[at]
        span, _, cleaning = found[number]
        if isinstance(read, RowUnreadable):
            errors.setdefault(number, read)
            continue
        answer.bytes_read += read.row.length
        try:
            left[number][place] = clean_row(read.run, read.bounds, survivors.get(span.log, ()), cleaning)
        except RecordsError as error:
            errors.setdefault(number, _corrupt(read, error))
    return [
        errors[number] if number in errors else [of_span[place] for place in sorted(of_span)]
        for number, of_span in enumerate(left)
    ]


def unread_of(error: RowUnreadable) -> Unread:
    """Return the report of a row that can't be read."""
    return Unread(finding_of(error.kind), error.text)


def _corrupt(read: ReadRow, error: RecordsError) -> RowUnreadable:
    return RowUnreadable("corrupt", None, str(error)).of_row(read.row)


async def _why_unreadable(stores: Stores, log: Log, span: Span, rows: Sequence[Row]) -> Outcome:
    """Return the outcome of an unreadable row: a row that was replaced meanwhile is no loss."""
    try:
        now = await rows_now(stores.coordinator, log, span)
    except LogGone:
        return Outcome.GONE
    return Outcome.UNREADABLE if now.rows == list(rows) else Outcome.CHANGED


def swaps_of(log: Log, rows: Sequence[Row], cleaned: Sequence[Cleaned], builder: MergedBuilder) -> Iterator[Swap]:
    """Add the rest of neighbouring rows to an object; yield the swaps that put it in their place, in their order."""
    old: list[Row] = []
    left: list[Cleaned] = []
    length = ended = 0
    for row, one in zip(rows, cleaned, strict=True):
        is_full = len(old) == MAX_ROWS_PER_SWAP or ended + len(one.ended) > MAX_ENDED_PER_SWAP
        if old and (is_full or (length and length + len(one.data) > ROW_BYTES)):
            yield _swap(log, old, left, builder)
            old, left, length, ended = [], [], 0, 0
        old.append(row)
        left.append(one)
        length += len(one.data)
        ended += len(one.ended)
    if old:
        yield _swap(log, old, left, builder)


def _swap(log: Log, old: Sequence[Row], left: Sequence[Cleaned], builder: MergedBuilder) -> Swap:
    ended = tuple(offset for one in left for offset in one.ended)
    left = [one for one in left if one.data]
    new = None
    if left:
        # Headers may have times that the coordinator can't hold, or did not get.
        newest_ms = exact(max(one.max_timestamp_ms for one in left))
        new = builder.add(
            [one.data for one in left],
            base_offset=old[0].base_offset,
            last_offset=left[-1].last_offset,
            max_timestamp_ms=min(newest_ms, max(row.max_timestamp_ms for row in old)),
            append_time_ms=max(row.append_time_ms for row in old),
        )
    return Swap(log.topic_id, log.partition, tuple(old), new, ended)
