"""Figures of diskless topics: offsets, and the bytes that their records take up in object storage.

A topic has four sizes:

- *live*: the bytes that the index rows of its partitions point to;
- *shared*: the part of it in objects that hold live bytes of other topics too, so that the topic's retention or
  deletion alone does not free them;
- *total*: the whole size of all objects that hold live bytes of the topic;
- *used*: the bytes that rows of any topic use of these. The rest of the total is dead: left by deleted records of
  any topic (an object does not say which), and freed with the last live byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.coordinator.interface import LogDescription
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import SEGMENT_OVERHEAD_BYTES, segment_key
from proxy.inspection.stores import SEGMENTS_PER_STEP, Progress, Stores, rows_of
from proxy.storage import ObjectMissing


class PartitionFigures(NamedTuple):
    """One partition's log. Without `rows_read` there is nothing of its objects."""

    partition: int
    lives: bool
    """False if the coordinator has no such log: the topic is being made or deleted."""
    log_start_offset: int
    high_watermark: int
    rows: int
    live_bytes: int
    shared_bytes: int
    objects: int
    """Number of objects that hold live bytes of the partition."""


class TopicFigures(NamedTuple):
    """One topic."""

    topic: DisklessTopic
    partitions: tuple[PartitionFigures, ...]
    rows_read: bool
    """True if the index was read, which the figures about objects need."""
    objects: int
    total_bytes: int | None
    """None if the sizes of objects were not asked for."""
    used_bytes: int
    missing: tuple[bytes, ...]
    """Segments that rows use and that are not in object storage: their records are lost."""

    @property
    def live_bytes(self) -> int:
        """Return the live bytes of all partitions."""
        return sum(partition.live_bytes for partition in self.partitions)

    @property
    def shared_bytes(self) -> int:
        """Return the shared bytes of all partitions."""
        return sum(partition.shared_bytes for partition in self.partitions)


async def topic_figures(
    stores: Stores, topic: DisklessTopic, sizes: Mapping[bytes, int] | None, progress: Progress, *, read_rows: bool
) -> TopicFigures:
    """Return the figures of a topic. Takes some 200 bytes of memory for each row of the topic.

    `sizes` has the sizes of all objects, as just listed; None leaves the total out. `read_rows` False leaves out all
    figures about objects. Raises CoordinatorUnavailable and StorageError.
    """
    logs: list[LogDescription | None] = []
    if any(topic.topic_id):
        logs = await stores.coordinator.describe(topic.topic_id, range(topic.partitions))
    by_partition = [
        await _bytes_by_segment(stores, topic, partition, progress) if read_rows else {}
        for partition in range(len(logs))
    ]
    own: dict[bytes, int] = {}
    for used in by_partition:
        for segment, size in used.items():
            own[segment] = own.get(segment, 0) + size
    used_bytes, shared = 0, set[bytes]()
    segments = list(own)
    for start in range(0, len(segments), SEGMENTS_PER_STEP):
        some = segments[start : start + SEGMENTS_PER_STEP]
        for segment, use in zip(some, await stores.coordinator.segment_use(some), strict=True):
            used_bytes += use.size_bytes
            if use.size_bytes > own[segment]:
                shared.add(segment)
    partitions = tuple(
        _partition(index, log, used, shared) for index, (log, used) in enumerate(zip(logs, by_partition, strict=True))
    )
    total, missing = None, []
    if sizes is not None:
        total = sum(sizes.get(segment, 0) for segment in own)
        for segment in (segment for segment in own if segment not in sizes):
            # It may have come after the listing.
            try:
                total += len(await stores.storage.fetch(segment_key(segment)))
            except ObjectMissing:
                (use,) = await stores.coordinator.segment_use([segment])
                if use.rows:  # else the rows went, and the object after them
                    missing.append(segment)
    return TopicFigures(topic, partitions, read_rows, len(own), total, used_bytes, tuple(missing))


def dead_bytes(figures: TopicFigures) -> int | None:
    """Return the unused bytes of the topic's objects; None if their sizes were not requested."""
    if figures.total_bytes is None:
        return None
    present = figures.objects - len(figures.missing)
    return max(0, figures.total_bytes - present * SEGMENT_OVERHEAD_BYTES - figures.used_bytes)


async def _bytes_by_segment(
    stores: Stores, topic: DisklessTopic, partition: int, progress: Progress
) -> dict[bytes, int]:
    used: dict[bytes, int] = {}
    async for rows in rows_of(stores.coordinator, topic, partition):
        for row in rows:
            if row.is_marker:
                continue
            used[row.segment] = used.get(row.segment, 0) + row.length
        progress(len(rows))
    return used


def _partition(
    index: int, log: LogDescription | None, used: Mapping[bytes, int], shared: set[bytes]
) -> PartitionFigures:
    if log is None:
        return PartitionFigures(index, False, -1, -1, 0, 0, 0, 0)
    return PartitionFigures(
        index,
        True,
        log.log_start_offset,
        log.high_watermark,
        log.rows,
        log.size_bytes,
        sum(size for segment, size in used.items() if segment in shared),
        len(used),
    )
