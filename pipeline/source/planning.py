"""The reads of a batch query, or of one trigger of a stream: ranges of offsets with their sizes."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.logs import LogGone, rows_of_log
from pipeline.source.errors import SourceError
from pipeline.source.filters import Bounds
from pipeline.source.follow import lose
from pipeline.source.gather import gathered
from pipeline.source.options import SourceOptions
from pipeline.source.positions import TimeLookup, resolve
from pipeline.source.reach import LogEnds, ends_of
from pipeline.source.selection import ChosenTopic, choose
from pipeline.source.splits import LogRange
from proxy.coordinator.interface import Coordinator, Row
from proxy.coordinator.interface_registry import DisklessTopic


async def batch_ranges(
    coordinator: Coordinator,
    topics: Iterable[DisklessTopic],
    options: SourceOptions,
    lookup: TimeLookup,
    bounds: Bounds,
) -> list[LogRange]:
    """Return one range for each partition that a batch query reads, without sizes.

    Raises SourceError (DataLoss if something that was named does not exist), CoordinatorUnavailable.
    """
    chosen = choose(topics, options.selection)
    ends = await ends_of(coordinator, chosen, committed=options.committed)
    for topic in chosen:
        for partition in topic.partitions:
            if (topic.name, partition) not in ends:
                raise SourceError(
                    f"{topic.name}-{partition} does not live: the topic is being made or deleted; try again"
                )

    async def before_the_end(topic: ChosenTopic, partition: int, timestamp_ms: int) -> int | None:
        # What comes while times are looked up is not read, nor what is not stable.
        offset = await lookup(topic, partition, timestamp_ms)
        return None if offset is None else min(offset, ends[topic.name, partition].end_offset)

    starting = await resolve(
        options.starting, chosen, ends, before_the_end, latest_where_none_matches=options.latest_where_none_matches
    )
    ending = await resolve(options.ending, chosen, ends, before_the_end, latest_where_none_matches=True)
    ranges = []
    for topic in chosen:
        for partition in topic.partitions:
            if not bounds.wants(topic.name, partition):
                continue
            where = topic.name, partition
            whole = LogRange(topic.name, topic.topic_id, partition, starting[where], ending[where])
            there = _there(whole, ends[where], options.fail_on_data_loss)
            start, end = max(there.start, bounds.lowest_offset), min(there.end, bounds.highest_offset + 1)
            if start < end:
                ranges.append(there._replace(start=start, end=end))
    return ranges


def _there(range_: LogRange, ends: LogEnds, fail: bool) -> LogRange:
    """Return the part of the range that the log has."""
    start, end = range_.start, range_.end
    if start < ends.log_start_offset and start < end:
        lose(f"{range_.name} begins at offset {ends.log_start_offset}, {start} was asked for", fail)
        start = ends.log_start_offset
    for asked in (start, end):
        if asked > ends.end_offset:
            lose(f"{range_.name} {_end_text(ends)}, {asked} was asked for", fail)
    start, end = min(start, ends.end_offset), min(end, ends.end_offset)
    return range_._replace(start=start, end=end)


def _end_text(ends: LogEnds) -> str:
    if ends.end_offset == ends.high_watermark:
        return f"ends at offset {ends.end_offset}"
    return f"is committed up to offset {ends.end_offset}, where a transaction is open"


async def sized(
    coordinator: Coordinator, ranges: Iterable[LogRange], *, split_bytes: int, bounds: Bounds, fail_on_data_loss: bool
) -> list[LogRange]:
    """Return the ranges cut where rows end, so that each piece is about a split at most.

    Pieces that hold nothing within `bounds` are left out. Raises DataLoss, CoordinatorUnavailable.
    """

    async def pieces_of(range_: LogRange) -> list[LogRange]:
        cutter = _Cutter(range_, split_bytes, bounds)
        try:
            async for rows in rows_of_log(
                coordinator, range_.topic_id, range_.partition, start=range_.start, end=range_.end
            ):
                cutter.take(rows)
        except LogGone:
            lose(
                f"{range_.name} was deleted; offsets {range_.start} to {range_.end - 1} were to be read",
                fail_on_data_loss,
            )
            return []
        return cutter.pieces()

    return [piece for pieces in await gathered(pieces_of, ranges) for piece in pieces]


class _Cutter:
    """Cuts one range as its rows come."""

    def __init__(self, range_: LogRange, split_bytes: int, bounds: Bounds) -> None:
        self._range = range_
        self._split_bytes = split_bytes
        self._bounds = bounds
        self._pieces: list[LogRange] = []
        self._start = range_.start
        self._size_bytes = 0
        self._seen = False

    def take(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._seen = True
            if row.max_timestamp_ms < self._bounds.lowest_timestamp_ms:
                if not self._size_bytes:
                    self._start = row.last_offset + 1
                continue
            if self._size_bytes and self._size_bytes + row.length > self._split_bytes:
                self._cut(row.base_offset)
            self._size_bytes += row.length

    def pieces(self) -> list[LogRange]:
        """Return all pieces. The last one goes to the end of the range, because a log may end in a gap.

        If there was no row, the piece is the range: its reader finds out whether that is a loss.
        """
        if self._size_bytes or not self._seen:
            self._cut(self._range.end)
        return self._pieces

    def _cut(self, end: int) -> None:
        self._pieces.append(self._range._replace(start=self._start, end=end, size_bytes=self._size_bytes))
        self._start, self._size_bytes = end, 0
