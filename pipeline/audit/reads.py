"""The tasks of an audit: read all bytes of some rows, and compare the batches with the rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline import reading
from pipeline.audit.defects import Defect
from pipeline.audit.spill import PlacedRow
from pipeline.audit.transactions import wrong_aborts
from pipeline.reading import Range, RowUnreadable
from pipeline.stores import storage_opened
from proxy.config import Settings
from proxy.coordinator.interface import Row
from proxy.coordinator.packing import MAX_EXACT
from proxy.records.batches import BatchBounds, read_header
from proxy.storage.interface import Buffer, ObjectStorage

TASK_BYTES = 64 << 20
"""Bytes that one task reads; the rows of one object are never split."""
TASK_ROWS = 20_000
"""Maximum number of rows of a task, in addition to those of one object. They travel with it, some 120 bytes each."""
GETS = 4
"""Number of GETs of one task at a time."""
MAX_BYTES_IN_FLIGHT = 32 << 20
"""Bytes of one task in an executor's memory."""
DEFECTS = {
    "missing": Defect.MISSING_OBJECT,
    "short": Defect.SHORT_OBJECT,
    "corrupt": Defect.CORRUPT_BATCH,
    "wrong_offsets": Defect.WRONG_OFFSETS,
    "unknown_format": Defect.UNKNOWN_FORMAT,
}
"""Defects by the kinds of `RowUnreadable`."""


class ReadTask(NamedTuple):
    """Rows of whole objects."""

    settings: Settings
    rows: tuple[PlacedRow, ...]
    size_bytes: int


class Bad(NamedTuple):
    """A row that is defective."""

    placed: PlacedRow
    defect: Defect
    text: str


@dataclass
class ReadAnswer:
    """The answer of one task."""

    bytes_read: int = 0
    gets: int = 0
    bad: list[Bad] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    """Good ones, by the number of their log."""


def read_tasks(settings: Settings, rows: Iterator[PlacedRow]) -> Iterator[ReadTask]:
    """Cut rows, which come segment by segment, into tasks; nothing is taken before it is asked for."""
    taken: list[PlacedRow] = []
    size_bytes = 0
    for placed in rows:
        full = size_bytes >= TASK_BYTES or len(taken) >= TASK_ROWS
        if full and taken[-1].row.segment != placed.row.segment:
            yield ReadTask(settings, tuple(taken), size_bytes)
            taken, size_bytes = [], 0
        taken.append(placed)
        size_bytes += placed.row.length
    if taken:
        yield ReadTask(settings, tuple(taken), size_bytes)


def read(task: ReadTask) -> ReadAnswer:
    """On an executor. Raises StorageError if the storage fails."""

    async def work() -> ReadAnswer:
        async with storage_opened(task.settings) as storage:
            return await read_rows(storage, task.rows)

    return asyncio.run(work())


async def read_rows(storage: ObjectStorage, rows: Sequence[PlacedRow]) -> ReadAnswer:
    """Read them with few GETs, and check all of their batches. Raises StorageError if the storage fails."""
    answer = ReadAnswer()
    ranges = _with_formats(reading.coalesce([placed.row for placed in rows]))
    fetched = reading.fetch_ranges(storage, ranges, gets=GETS, max_bytes_in_flight=MAX_BYTES_IN_FLIGHT)
    async with aclosing(fetched):
        async for range_, data in fetched:
            answer.gets += 1
            if isinstance(data, RowUnreadable):
                answer.bad += [_missing(rows[place], data) for place in range_.places]
                continue
            answer.bytes_read += len(data)
            for place in range_.places:
                _check(rows[place], range_, data, answer)
    return answer


def _missing(placed: PlacedRow, error: RowUnreadable) -> Bad:
    remedy = "restore it from a version or copy of the bucket: docs/pipeline/audit.md"
    text = f"{error.of_row(placed.row).text}; {remedy}"
    return Bad(placed, DEFECTS[error.kind], text)


def _check(placed: PlacedRow, range_: Range, data: Buffer, answer: ReadAnswer) -> None:
    try:
        run_, bounds = reading.row_batches(data, range_, placed.row)
    except RowUnreadable as error:
        answer.bad.append(Bad(placed, DEFECTS[error.kind], error.text))
        return
    if wrong := _wrong_timestamp(placed.row, run_, bounds):
        answer.bad.append(Bad(placed, Defect.WRONG_MAX_TIMESTAMP, wrong))
        return
    if placed.aborts is not None and (wrong := wrong_aborts(run_, bounds, placed.aborts)):
        answer.bad.append(Bad(placed, Defect.WRONG_ABORTED_TRANSACTION, wrong))
        return
    answer.batches[placed.log] += len(bounds)


def _wrong_timestamp(row: Row, run_: Buffer, bounds: Sequence[BatchBounds]) -> str:
    newest_ms = max(read_header(run_, batch.position).max_timestamp_ms for batch in bounds)
    newest_ms = max(-MAX_EXACT, min(newest_ms, MAX_EXACT))
    # What a merge or a compaction has written may have lost its newest record to a later compaction.
    if newest_ms == row.max_timestamp_ms or (row.offsets_in_place and newest_ms < row.max_timestamp_ms):
        return ""
    return (
        f"offsets {row.base_offset} to {row.last_offset} have {row.max_timestamp_ms} ms as their maximum timestamp, "
        f"their batches {newest_ms} ms"
    )


def _with_formats(ranges: list[Range]) -> list[Range]:
    """Return the ranges; those near an object's beginning start with it, to check its format at no further GET."""
    return [range_._replace(start=0) if range_.start <= reading.MAX_GAP_BYTES else range_ for range_ in ranges]
