"""How the jobs read records: many rows by few ranged GETs, each batch checked, with offsets and times in place.

Everything in `pipeline` that reads records does it by way of this file. Sans-io except for `fetch_ranges`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from struct import Struct
from typing import Literal, NamedTuple, cast

from crc32c import crc32c

from proxy.coordinator.interface import Row
from proxy.diskless.row_reader import marker_run
from proxy.diskless.wal.segment import FORMAT_VERSION, MERGED_FORMAT_VERSION, SEGMENT_OVERHEAD_BYTES, segment_key
from proxy.records.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    BatchBounds,
    RecordsError,
    check_offsets,
    patch_offsets,
)
from proxy.storage.interface import Buffer, ObjectMissing, ObjectRefused, ObjectStorage

MAX_GET_BYTES = 8_388_608
"""Maximum bytes of one GET of a job, unless a single row is larger."""
MAX_GAP_BYTES = 262_144
"""Maximum gap between two rows of one object that is read in vain, because a GET of its own costs more."""
LEADER_EPOCH = 0
"""The constant partition leader epoch of all batches of diskless topics."""

Kind = Literal["missing", "refused", "short", "corrupt", "wrong_offsets", "unknown_format"]

_FINDINGS = {
    "missing": "missing_object",
    "refused": "refused_object",
    "short": "short_object",
    "corrupt": "corrupt_batch",
}
_AHEAD_PER_GET = 4
"""Ranges that have been read, or wait to be, for each GET that may be under way."""
_NO_OBJECT = b""
_HEAD = Struct(">8xi4xbI2xi")
"""Fields of a batch: length, magic, CRC, last offset delta."""
_FORMATS = {FORMAT_VERSION: False, MERGED_FORMAT_VERSION: True}
"""Whether an object's batches have their offsets in place, by its first byte."""


class RowUnreadable(Exception):
    """A row's bytes are missing, or do not match the row.

    The text names object, position and offsets, and fits a line. `row` is None if a whole range is concerned.
    """

    def __init__(self, kind: Kind, row: Row | None, text: str) -> None:
        super().__init__(kind, row, text)
        self.kind: Kind = kind
        self.row = row
        self.text = text

    def __str__(self) -> str:
        return self.text

    def of_row(self, row: Row) -> RowUnreadable:
        """The same, said of one of the rows in the range."""
        return RowUnreadable(self.kind, row, f"{_name(row)}: {self.text}")


def finding_of(kind: str) -> str:
    """Return the name of a finding, as the audit has it, for what `RowUnreadable` says."""
    return _FINDINGS.get(kind, kind)


class Range(NamedTuple):
    """The part of an object that one GET reads."""

    segment: bytes
    start: int
    """Position of its first byte in the object."""
    end: int
    """Exclusive."""
    places: tuple[int, ...]
    """The requested rows in it, by ascending position in the object."""

    @property
    def has_object(self) -> bool:
        """Return whether there is anything to read: the range of all markers is empty."""
        return self.end > self.start


def coalesce(
    rows: Sequence[Row], *, max_get_bytes: int = MAX_GET_BYTES, max_gap_bytes: int = MAX_GAP_BYTES
) -> list[Range]:
    """Return the ranges that hold all of `rows`, in the order in which their objects (then ranges) first come in
    `rows`.

    Rows of one object that are at most `max_gap_bytes` apart share a range of at most `max_get_bytes`; no row is cut. A
    row right after an object's format byte is read with that byte, to check it. All markers of transactions share an
    empty range.
    """
    of_segment: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        of_segment.setdefault(_NO_OBJECT if row.is_marker else row.segment, []).append(place)
    markers = of_segment.pop(_NO_OBJECT, [])
    ranges: list[Range] = []
    for segment, places in of_segment.items():
        places.sort(key=lambda place: rows[place].position)
        ranges += _ranges_of(segment, rows, places, max_get_bytes, max_gap_bytes)
    if markers:
        ranges.append(Range(_NO_OBJECT, 0, 0, tuple(markers)))
    ranges.sort(key=lambda one: min(one.places))
    return ranges


def _ranges_of(
    segment: bytes, rows: Sequence[Row], places: Sequence[int], max_get_bytes: int, max_gap_bytes: int
) -> Iterator[Range]:
    inside: list[int] = []
    start = end = 0
    for place in places:
        position = rows[place].position
        row_end = position + rows[place].length
        if inside and (position - end > max_gap_bytes or max(end, row_end) - start > max_get_bytes):
            yield Range(segment, start, end, tuple(inside))
            inside = []
        if not inside:
            start, end = (0 if position == SEGMENT_OVERHEAD_BYTES else position), row_end
        inside.append(place)
        end = max(end, row_end)
    if inside:
        yield Range(segment, start, end, tuple(inside))


async def fetch_ranges(
    storage: ObjectStorage,
    ranges: Iterable[Range],
    *,
    gets: int,
    max_bytes_in_flight: int,
    despite_refusals: bool = False,
) -> AsyncGenerator[tuple[Range, bytes | bytearray | RowUnreadable], None]:
    """Yield the bytes of the ranges in their order, read ahead: `gets` at a time, within the allowed memory.

    The bytes yielded last count until the next are requested. A range larger than the allowed memory comes alone. Fewer
    bytes come if the object is shorter, RowUnreadable (`missing`, of no row) if there is none. Raises StorageError if
    the storage fails. With `despite_refusals`, an object that it refuses to return gives RowUnreadable instead
    (`refused`, of no row). Close it (`aclosing`) if it is left early.
    """
    left = iter(ranges)
    ahead: deque[tuple[Range, asyncio.Task[bytes | bytearray | RowUnreadable]]] = deque()
    permits = asyncio.Semaphore(gets)
    waiting = next(left, None)
    bytes_in_flight = 0
    try:
        while waiting is not None or ahead:
            while waiting is not None and (
                not ahead
                or (
                    len(ahead) < gets * _AHEAD_PER_GET
                    and bytes_in_flight + waiting.end - waiting.start <= max_bytes_in_flight
                )
            ):
                bytes_in_flight += waiting.end - waiting.start
                ahead.append((waiting, asyncio.create_task(_fetch(storage, waiting, permits, despite_refusals))))
                waiting = next(left, None)
            range_, task = ahead.popleft()
            yield range_, await task
            bytes_in_flight -= range_.end - range_.start
    finally:
        for _, task in ahead:
            task.cancel()
        await asyncio.gather(*(task for _, task in ahead), return_exceptions=True)


async def _fetch(
    storage: ObjectStorage, range_: Range, permits: asyncio.Semaphore, despite_refusals: bool
) -> bytes | bytearray | RowUnreadable:
    if not range_.has_object:
        return b""
    async with permits:
        try:
            return await storage.fetch(segment_key(range_.segment), range_.start, range_.end)
        except ObjectMissing:
            return RowUnreadable("missing", None, f"there is no object {segment_key(range_.segment)}")
        except ObjectRefused as error:
            if not despite_refusals:
                raise
            return RowUnreadable("refused", None, str(error))


def row_batches(data: Buffer, range_: Range, row: Row) -> tuple[bytearray | memoryview, list[BatchBounds]]:
    """Return the row's batches, out of the `data` of a range that holds it, and their bounds in them.

    Base offsets, leader epoch 0 and append time are in place, the CRC of each batch is verified. Missing values are
    written into `data` itself if that is a bytearray, or into a copy if it is read-only; otherwise the result is a view
    of `data`. A marker of a transaction is a control batch, whatever `data` is. Raises RowUnreadable.
    """
    if row.is_marker:
        marker = marker_run(row)
        return marker.data, list(marker.batches)
    check_format(data, range_, row)
    start = row.position - range_.start
    found = memoryview(data)[start : start + row.length]
    run = found if row.offsets_in_place or not found.readonly else memoryview(bytearray(found))
    return run, place_batches(run, row)


def check_format(data: Buffer, range_: Range, row: Row) -> None:
    """Raise RowUnreadable if the range begins with the object, and the object has another format than the row says."""
    if range_.start == 0 and data and _FORMATS.get(data[0]) is not row.offsets_in_place:
        wanted = "in place" if row.offsets_in_place else "not in place"
        raise _unreadable(
            "unknown_format", row, f"the object's format is {data[0]}, the coordinator has its offsets as {wanted}"
        )


def place_batches(run: memoryview | bytearray, row: Row) -> list[BatchBounds]:
    """Check the batches of a row in `run`, its bytes alone, and set base offsets, leader epoch and append time there.

    Can be done twice with one outcome. Raises RowUnreadable: `short`, `corrupt` or `wrong_offsets`.
    """
    if len(run) < row.length:
        raise _unreadable("short", row, f"the object is cut off: {len(run)} of {row.length} bytes are there")
    _check_crcs(run, row)
    if row.offsets_in_place:
        try:
            return check_offsets(run, row.base_offset, row.last_offset)
        except RecordsError as error:
            raise _unreadable("wrong_offsets", row, str(error)) from error
    append_time_ms = row.append_time_ms if row.log_append_time else None
    bounds = patch_offsets(run, row.base_offset, LEADER_EPOCH, append_time_ms)
    last_offset = bounds[-1].last_offset if bounds else row.base_offset - 1
    if last_offset != row.last_offset:
        raise _unreadable("wrong_offsets", row, f"the bytes hold offsets to {last_offset}")
    return bounds


def _check_crcs(run: memoryview | bytearray, row: Row) -> None:
    """Raise RowUnreadable if the bytes are not whole batches with valid CRCs."""
    position, end = 0, len(run)
    with memoryview(run) as view:
        while position < end:
            if end - position < HEADER_BYTES:
                raise _unreadable("corrupt", row, f"{end - position} bytes at byte {position} are no record batch")
            length, magic, crc, delta = _HEAD.unpack_from(view, position)
            total = length + LENGTH_END
            if magic != MAGIC or delta < 0 or not HEADER_BYTES <= total <= end - position:
                raise _unreadable(
                    "corrupt",
                    row,
                    f"no record batch is at byte {position} of {end}: length {length}, magic {magic}, last offset "
                    f"delta {delta}",
                )
            if crc32c(view[position + CRC_COVERS_FROM : position + total]) != crc:
                raise _unreadable(
                    "corrupt", row, f"the CRC of the batch at byte {position} does not match its {total} bytes"
                )
            position += total


def _unreadable(kind: str, row: Row, text: str) -> RowUnreadable:
    return RowUnreadable(cast(Kind, kind), row, f"{_name(row)}: {text}")


def _name(row: Row) -> str:
    return (
        f"object {segment_key(row.segment)}, position {row.position}, length {row.length}, for offsets "
        f"{row.base_offset} to {row.last_offset}"
    )
