"""A WAL segment batch by batch, wherever it is kept, a few megabytes in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Protocol

from crc32c import crc32c

from proxy.coordinator.packing import LAST_SEQUENCE
from proxy.diskless.wal.segment import MERGED_FORMAT_VERSION, SEGMENT_OVERHEAD_BYTES, SegmentError, check_preamble
from proxy.inspection.segments import Extent
from proxy.records.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    RecordsError,
    read_header,
)
from proxy.storage import ObjectStorage

WINDOW_BYTES = 4_194_304
"""Bytes of one read; a larger batch is read whole."""
_LENGTH = Struct(">8xi")


class Source(Protocol):
    """Bytes of one object."""

    async def read(self, start: int, end: int) -> bytes | bytearray:
        """Bytes `start` to `end` (exclusive), fewer at the object's end. Raises OSError or StorageError."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine."""

    path: Path

    async def read(self, start: int, end: int) -> bytes:
        """Read bytes of the file, as `Source.read`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """An object of an open storage."""

    storage: ObjectStorage
    key: str

    async def read(self, start: int, end: int) -> bytes | bytearray:
        """Read bytes of the object, as `Source.read`."""
        return await self.storage.fetch(self.key, start, end)


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One batch, as it lies in the segment."""

    position: int
    header: BatchHeader
    data: memoryview
    base_offset: int
    """Offset as stored: 0 in segments, whose offsets the coordinator keeps; the true one in merged objects."""
    is_valid: bool
    """Whether its CRC is right."""
    has_offset: bool
    """Whether the base offset is the true one."""

    @property
    def last_sequence(self) -> int:
        """Return the sequence of its last record; -1 if the producer is not idempotent."""
        if self.header.base_sequence < 0:
            return -1
        return (self.header.base_sequence + self.header.last_offset_delta) & LAST_SEQUENCE


async def dumped_batches(source: Source) -> AsyncIterator[DumpedBatch]:
    """Yield all batches in their order.

    Raises SegmentError if the bytes do not begin as a segment does, and RecordsError, with the position, at the first
    bytes that are not a whole batch.
    """
    window = _Window(source)
    preamble = await window.bytes(0, SEGMENT_OVERHEAD_BYTES)
    has_offsets = check_preamble(preamble) == MERGED_FORMAT_VERSION
    position = SEGMENT_OVERHEAD_BYTES
    while True:
        head = await window.bytes(position, HEADER_BYTES)
        if not head:
            return
        length = HEADER_BYTES
        if len(head) >= LENGTH_END:
            length = max(length, _LENGTH.unpack_from(head)[0] + LENGTH_END)
        batch = await window.bytes(position, length)
        try:
            header = read_header(batch)
        except RecordsError as error:
            raise RecordsError(error.error_code, f"at byte {position}: {error}") from error
        is_valid = crc32c(batch[CRC_COVERS_FROM:]) == header.crc
        base_offset = int.from_bytes(batch[:8], "big", signed=True)
        yield DumpedBatch(position, header, batch, base_offset, is_valid, has_offsets)
        position += header.length


def owner_of(batch: DumpedBatch, extents: Sequence[Extent]) -> Extent | None:
    """Return the extent, of those by position, that a batch lies in; None if nothing uses it."""
    end = batch.position + batch.header.length
    return next((one for one in extents if one.position <= batch.position and end <= one.position + one.length), None)


class _Window:
    """The part of the object that is in memory."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._start = 0
        self._data = memoryview(b"")

    async def bytes(self, position: int, count: int) -> memoryview:
        """`count` bytes from `position` on, fewer at the object's end; positions only rise."""
        if position + count > self._start + len(self._data):
            wanted = max(count, WINDOW_BYTES)
            self._start = position
            self._data = memoryview(await self._source.read(position, position + wanted))
        at = position - self._start
        return self._data[at : at + count]


__all__ = ["DumpedBatch", "LocalFile", "SegmentError", "Source", "StoredSegment", "dumped_batches", "owner_of"]
