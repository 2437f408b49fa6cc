"""The work of an executor for a merge: read the rows of a task by few GETs, check them, upload the merged objects.

The coordinator is not asked: the new objects mean nothing until the driver has swapped rows for them. Each attempt
chooses new names for its objects, so attempts that are killed, or run twice, do not collide; they leave orphans.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

from pipeline.merge.layout import Joined, bytes_in_object, joined_rows, object_bytes, old_rows
from pipeline.merge.plan import MergeTask, Output
from pipeline.reading import (
    Range,
    RowUnreadable,
    check_format,
    coalesce,
    fetch_ranges,
    place_batches,
)
from pipeline.stores import storage_opened
from proxy.config import Settings
from proxy.coordinator.interface import Row
from proxy.diskless.row_reader import marker_run
from proxy.diskless.wal.segment import MERGED_FORMAT_VERSION, segment_key
from proxy.records.batches import CONTROL_BATCH_BYTES
from proxy.storage import ObjectStorage, StorageError

GETS = 16
"""At a time, of one task."""
MAX_BYTES_IN_FLIGHT = 67_108_864
"""Bytes that a task has read, or is reading, in addition to the objects that it makes."""


class Unread(NamedTuple):
    """A row that could not be read, and its place."""

    partition: int
    row: Row
    kind: str
    text: str


class Made(NamedTuple):
    """An object that was uploaded."""

    place: int
    """Among the outputs of the task."""
    segment: bytes
    size_bytes: int
    joined: tuple[Joined, ...]
    """The rows in it."""


class Merged(NamedTuple):
    """The result of one attempt of a task."""

    made: tuple[Made, ...]
    """Objects, without those of which nothing could be read."""
    unread: tuple[Unread, ...]
    gets: int
    bytes_read: int


def merge(settings: Settings, task: MergeTask) -> Merged:
    """Do a task, in a process of Spark's. Raises StorageError, by which the whole attempt fails."""
    return asyncio.run(_merge(settings, task))


async def _merge(settings: Settings, task: MergeTask) -> Merged:
    async with storage_opened(settings) as storage:
        return await Merger(storage, task).merge()


class Merger:
    """One attempt of a task."""

    def __init__(self, storage: ObjectStorage, task: MergeTask) -> None:
        self._storage = storage
        self._task = task
        self._outputs = [_Open(output, dict(task.log_starts)) for output in task.outputs]
        self._unread: list[Unread] = []
        self._made: list[Made] = []

    async def merge(self) -> Merged:
        """Read, check, upload; an object is uploaded as soon as it is complete.

        Raises StorageError if the storage fails, or rejects all requests. If it rejects single objects, their rows stay
        as they are.
        """
        places = [(opened, at) for opened in self._outputs for at in opened.places()]
        ranges = coalesce([at.row for _, at in places])
        gets = sum(range_.has_object for range_ in ranges)
        bytes_read = refused = 0
        uploads: list[asyncio.Task[None]] = []
        fetching = fetch_ranges(
            self._storage, ranges, gets=GETS, max_bytes_in_flight=MAX_BYTES_IN_FLIGHT, despite_refusals=True
        )
        try:
            async with aclosing(fetching) as fetched:
                async for range_, data in fetched:
                    if isinstance(data, RowUnreadable):
                        refused += data.kind == "refused"
                        if refused == gets:
                            raise StorageError(str(data))
                    else:
                        bytes_read += len(data)
                    for place in range_.places:
                        opened, at = places[place]
                        self._take(opened, at, range_, data)
                        if not opened.missing_rows:
                            uploads.append(asyncio.create_task(self._upload(opened)))
            await asyncio.gather(*uploads)
        finally:
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)
        return Merged(tuple(self._made), tuple(self._unread), gets, bytes_read)

    def _take(self, opened: _Open, at: _Place, range_: Range, data: bytes | bytearray | RowUnreadable) -> None:
        opened.missing_rows -= 1
        try:
            if isinstance(data, RowUnreadable):
                raise data.of_row(at.row)
            opened.put(at, range_, data)
        except RowUnreadable as error:
            opened.unreadable.add(at.row)
            self._unread.append(Unread(at.partition, at.row, error.kind, str(error)))

    async def _upload(self, opened: _Open) -> None:
        data, joined = opened.closed()
        if not joined:
            return
        segment = uuid.uuid4().bytes
        await self._storage.upload(segment_key(segment), data, len(data))
        self._made.append(Made(self._outputs.index(opened), segment, len(data), tuple(joined)))


class _Place(NamedTuple):
    """The place of a row."""

    partition: int
    row: Row
    position: int


class _Open:
    """An object that is being made."""

    def __init__(self, output: Output, log_starts: Mapping[int, int]) -> None:
        self._output = output
        self._log_starts = log_starts
        self._joined = joined_rows(output)
        self._data = bytearray(object_bytes(self._joined))
        self._data[0] = MERGED_FORMAT_VERSION
        self.missing_rows = output.rows
        self.unreadable: set[Row] = set()
        self._left_out: dict[Row, int] = {}
        """Bytes at the beginning of first rows, of batches before the log start."""

    def places(self) -> list[_Place]:
        """Return the places of all its rows."""
        places: list[_Place] = []
        for joined in self._joined:
            position = joined.position
            for row in old_rows(self._output, joined):
                places.append(_Place(self._output.parts[joined.part].partition, row, position))
                position += bytes_in_object(row)
        return places

    def put(self, at: _Place, range_: Range, data: bytes | bytearray) -> None:
        """Copy a row from the read bytes to its place, and check it there. Raises RowUnreadable."""
        if at.row.is_marker:
            self._data[at.position : at.position + CONTROL_BATCH_BYTES] = marker_run(at.row).data
            return
        check_format(data, range_, at.row)
        start = at.row.position - range_.start
        with memoryview(data)[start : start + at.row.length] as found:
            run = memoryview(self._data)[at.position : at.position + len(found)]
            run[:] = found
            bounds = place_batches(run, at.row)
        log_start = self._log_starts.get(at.partition, 0)
        if at.row.base_offset < log_start:
            left_out = sum(one.length for one in bounds[:-1] if one.last_offset < log_start)
            if left_out:
                self._left_out[at.row] = left_out

    def closed(self) -> tuple[bytearray, list[Joined]]:
        """Return the whole object without what could not be read, and what lies in it: nothing if nothing could be."""
        data, joined = self._data, self._joined
        if self.unreadable or self._left_out:
            was_at = {place.row: place.position + self._left_out.get(place.row, 0) for place in self.places()}
            joined = joined_rows(self._output, self.unreadable, self._left_out)
            data = bytearray(object_bytes(joined))
            for one in joined:
                start = was_at[old_rows(self._output, one)[0]]
                data[one.position : one.position + one.length] = self._data[start : start + one.length]
            if joined:
                data[0] = MERGED_FORMAT_VERSION
        self._data = bytearray()
        return data, joined
