"""The owners of the bytes in a WAL segment: the object itself does not name them, the coordinator's index does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import SEGMENT_OVERHEAD_BYTES, segment_key
from proxy.inspection.stores import SEGMENTS_PER_STEP, Progress, Stores, object_size, rows_of
from proxy.storage import ObjectMissing


class Extent(NamedTuple):
    """A contiguous range of one partition's offsets in an object: one index row."""

    topic: str
    partition: int
    base_offset: int
    last_offset: int
    position: int
    """Position of its first byte in the object."""
    length: int


class SegmentFigures(NamedTuple):
    """One object."""

    segment: bytes
    size_bytes: int | None
    """Size of the object; None if there is no such object."""
    used_bytes: int
    """Bytes used by rows of all topics."""
    rows: int
    extents: tuple[Extent, ...]
    """Extents of the topics that were looked at, by position."""

    @property
    def dead_bytes(self) -> int | None:
        """Return the bytes that nothing uses."""
        if self.size_bytes is None:
            return None
        return max(0, self.size_bytes - SEGMENT_OVERHEAD_BYTES - self.used_bytes)


async def segment_figures(stores: Stores, segment: bytes, progress: Progress) -> SegmentFigures:
    """One object. Reads the index of all topics until all that is used of it is found.

    Raises CoordinatorUnavailable and StorageError.
    """
    size = await _size(stores, segment)
    (use,) = await stores.coordinator.segment_use([segment])
    extents: list[Extent] = []
    found = 0
    for topic in stores.topics:
        for partition in range(topic.partitions if any(topic.topic_id) else 0):
            if found >= use.size_bytes:
                break
            async for rows in rows_of(stores.coordinator, topic, partition):
                progress(len(rows))
                extents += [_extent(topic, partition, row) for row in _stored(rows) if row.segment == segment]
            found = sum(extent.length for extent in extents)
    return SegmentFigures(segment, size, use.size_bytes, use.rows, _sorted(extents))


async def segments_of_topic(
    stores: Stores, topic: DisklessTopic, sizes: Mapping[bytes, int], progress: Progress
) -> list[SegmentFigures]:
    """All objects that hold live bytes of a topic, with its extents in them, in the order of its partitions' offsets.

    `sizes`: of all objects, as listed a moment ago. Holds some 400 bytes of memory for each row of the topic. Raises
    CoordinatorUnavailable and StorageError.
    """
    extents: dict[bytes, list[Extent]] = {}
    for partition in range(topic.partitions if any(topic.topic_id) else 0):
        async for rows in rows_of(stores.coordinator, topic, partition):
            progress(len(rows))
            for row in _stored(rows):
                extents.setdefault(row.segment, []).append(_extent(topic, partition, row))
    figures: list[SegmentFigures] = []
    segments = list(extents)
    for start in range(0, len(segments), SEGMENTS_PER_STEP):
        some = segments[start : start + SEGMENTS_PER_STEP]
        for segment, use in zip(some, await stores.coordinator.segment_use(some), strict=True):
            size = sizes.get(segment)
            if size is None:  # it came after the listing, or is gone
                size = await _size(stores, segment)
            figures.append(SegmentFigures(segment, size, use.size_bytes, use.rows, _sorted(extents[segment])))
    return figures


async def _size(stores: Stores, segment: bytes) -> int | None:
    try:
        return await object_size(stores.storage, segment_key(segment))
    except ObjectMissing:
        return None


def _stored(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows that have an object: all except markers of transactions."""
    return (row for row in rows if not row.is_marker)


def _extent(topic: DisklessTopic, partition: int, row: Row) -> Extent:
    return Extent(topic.name, partition, row.base_offset, row.last_offset, row.position, row.length)


def _sorted(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    return tuple(sorted(extents, key=lambda extent: extent.position))
