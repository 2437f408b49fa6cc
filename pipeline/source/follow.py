"""The bytes of ranges of offsets, even if the objects that hold them change meanwhile.

A task knows offsets, not objects. It asks the coordinator for the objects when it begins, and again if an object has
gone because its rows were merged, compacted or deleted. So reading continues at the very next offset.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import structlog

from pipeline.aborted import NONE_ABORTED, Aborted
from pipeline.logs import patiently
from pipeline.reading import Range, RowUnreadable, coalesce, fetch_ranges, row_batches
from pipeline.source.errors import DataLoss, SourceError
from pipeline.source.filters import ANY, Bounds
from pipeline.source.splits import LogRange
from proxy.coordinator.interface import Coordinator, FindRequest, LogAnswer, Row
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from proxy.records.batches import BatchBounds
from proxy.storage.interface import Buffer, ObjectStorage

log = structlog.get_logger()

WINDOW_BYTES = 67_108_864
"""Bytes of rows that are requested at a time, for all ranges together."""
GETS = 4
MAX_BYTES_IN_FLIGHT = 33_554_432
"""Bytes that a task reads ahead of what it decodes."""
MAX_ATTEMPTS = 3
"""Number of look-ups without progress that may name the same missing object; the last of them is an error."""
_PAUSE_S = 0.2


class Run(NamedTuple):
    """The batches of one row, with offsets, epoch and times in place, CRCs verified."""

    range: LogRange
    """The wanted offsets; the batches may begin before it and end after it."""
    start: int
    """The first offset that has not been given yet."""
    row: Row
    data: bytearray | memoryview
    batches: Sequence[BatchBounds]
    aborted: Aborted
    """Aborted transactions whose records are left out; none under `read_uncommitted`."""


class _Part:
    """The progress of reading one range."""

    def __init__(self, range_: LogRange) -> None:
        self.range = range_
        self.next_offset = range_.start
        self.missing = Counter[bytes]()
        """Number of rounds in which each object (by segment) was missing, since the last progress. A merge can remove
        another object in every round, so rounds alone say nothing."""
        self.rows: deque[Row] = deque()
        """Rows of this window that were not yielded yet."""
        self.aborted = NONE_ABORTED
        self.failed: RowUnreadable | None = None
        """Why the rest of this window's rows is not read."""

    @property
    def done(self) -> bool:
        return self.next_offset >= self.range.end


async def follow(
    coordinator: Coordinator,
    storage: ObjectStorage,
    ranges: Iterable[LogRange],
    *,
    bounds: Bounds = ANY,
    fail_on_data_loss: bool,
    committed: bool = False,
) -> AsyncGenerator[Run, None]:
    """Yield all rows that hold offsets of the ranges, those of each range in order, each offset in one of them.

    Rows that can hold nothing within `bounds` are left out. With `committed`, runs have the aborted transactions, and
    the ranges must end at the last stable offset or before it. Raises SourceError for unreadable rows, DataLoss for
    missing ones, StorageError, CoordinatorUnavailable.
    """
    parts = [_Part(range_) for range_ in ranges]
    while left := [part for part in parts if not part.done]:
        await _look_up(coordinator, left, bounds, fail_on_data_loss, committed)
        window = _Window(left)
        async with aclosing(window.read(storage)) as runs:
            async for run in runs:
                yield run
        for part in left:
            if part.failed is not None:
                await _count_attempt(part)


async def _look_up(
    coordinator: Coordinator, parts: Sequence[_Part], bounds: Bounds, fail: bool, committed: bool
) -> None:
    """Give each part its rows, from its next offset on; a part that has come to its end is done."""
    share = max(1, WINDOW_BYTES // len(parts))
    requests = [FindRequest(part.range.topic_id, part.range.partition, part.next_offset, share) for part in parts]
    answers = await patiently(lambda: coordinator.find(requests))
    for part, answer in zip(parts, answers, strict=True):
        part.rows.clear()
        part.failed = None
        if answer.error_code == NONE:
            _take_rows(part, answer, bounds, fail)
            part.aborted = Aborted(answer.aborted) if committed and answer.aborted else NONE_ABORTED
        else:
            _explain(part, answer, fail)


def _take_rows(part: _Part, answer: LogAnswer, bounds: Bounds, fail: bool) -> None:
    range_ = part.range
    for row in answer.rows:
        if row.base_offset < range_.end:
            part.rows.append(row)
    if part.rows:
        part.rows = deque(row for row in part.rows if row.max_timestamp_ms >= bounds.lowest_timestamp_ms)
        if not part.rows:
            part.next_offset = answer.rows[-1].last_offset + 1
    else:
        if answer.high_watermark < range_.end:
            lose(f"{range_.name} ends at offset {answer.high_watermark} now, {range_.end} was its end", fail)
        part.next_offset = range_.end


def _explain(part: _Part, answer: LogAnswer, fail: bool) -> None:
    range_ = part.range
    if answer.error_code == KAFKA_STORAGE_ERROR:
        raise SourceError(f"{range_.name} can't be read: its shard is fenced; see `diskless-proxy coordinator check`")
    if answer.error_code == OFFSET_OUT_OF_RANGE and answer.log_start_offset > part.next_offset:
        until = min(answer.log_start_offset, range_.end)
        lose(f"offsets {part.next_offset} to {until - 1} of {range_.name} were deleted before they were read", fail)
        part.next_offset = until
    else:
        what = "was deleted" if answer.error_code != OFFSET_OUT_OF_RANGE else f"ends at {answer.high_watermark} now"
        lose(f"{range_.name} {what}; offsets {part.next_offset} to {range_.end - 1} were to be read", fail)
        part.next_offset = range_.end


def lose(text: str, fail: bool) -> None:
    """Raise DataLoss because records are gone, or log a warning if the query accepts losses."""
    if fail:
        raise DataLoss(f"{text}; set the option failOnDataLoss to false to continue with the existing records")
    log.warning("data_lost", text=text)


async def _count_attempt(part: _Part) -> None:
    """Count the missing object. Raise SourceError if it was missing too often or the row failed for another reason."""
    failed = part.failed
    assert failed is not None
    assert failed.row is not None
    part.missing[failed.row.segment] += 1
    attempts = part.missing[failed.row.segment]
    if failed.kind != "missing" or attempts >= MAX_ATTEMPTS:
        raise SourceError(f"{part.range.name} can't be read from offset {part.next_offset}: {failed}")
    if attempts > 1:
        await asyncio.sleep(_PAUSE_S)


class _Window:
    """The rows that one look-up found, of all parts: read by as few GETs as they lie in objects, given in order."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._rows = [row for part in parts for row in part.rows]
        self._part_of = [part for part in parts for _ in part.rows]
        self._arrived: dict[int, Run] = {}
        """Runs by the row's place: read, while earlier rows of the same part are not."""
        self._places = {id(part): deque[int]() for part in parts}
        for place, part in enumerate(self._part_of):
            self._places[id(part)].append(place)

    async def read(self, storage: ObjectStorage) -> AsyncGenerator[Run, None]:
        ranges = coalesce(self._rows)
        async with aclosing(
            fetch_ranges(storage, ranges, gets=GETS, max_bytes_in_flight=MAX_BYTES_IN_FLIGHT)
        ) as fetched:
            async for range_, data in fetched:
                for place in range_.places:
                    self._take(place, range_, data)
                    for run in self._due(self._part_of[place]):
                        yield run

    def _take(self, place: int, range_: Range, data: Buffer | RowUnreadable) -> None:
        part, row = self._part_of[place], self._rows[place]
        if part.failed is not None:
            return
        if isinstance(data, RowUnreadable):
            part.failed = data.of_row(row)
            return
        try:
            run, batches = row_batches(data, range_, row)
        except RowUnreadable as error:
            part.failed = error
        else:
            self._arrived[place] = Run(part.range, 0, row, run, batches, part.aborted)

    def _due(self, part: _Part) -> Iterable[Run]:
        places = self._places[id(part)]
        while places and places[0] in self._arrived:
            run = self._arrived.pop(places.popleft())
            start = part.next_offset
            part.next_offset = run.row.last_offset + 1
            part.missing.clear()
            yield run._replace(start=start)
