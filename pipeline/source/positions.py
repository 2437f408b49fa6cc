"""Options of where to begin and end, made offsets of partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from pipeline.source.errors import OptionError, SourceError
from pipeline.source.gather import gathered
from pipeline.source.limits import EARLIEST, LATEST, AllAt, EachAt, Limit, Since, TopicPartition
from pipeline.source.reach import LogEnds
from pipeline.source.selection import ChosenTopic

TimeLookup = Callable[[ChosenTopic, int, int], Awaitable[int | None]]
"""Topic, partition and timestamp: see `times.offset_since`."""


async def resolve(
    limit: Limit,
    topics: Sequence[ChosenTopic],
    ends: Mapping[TopicPartition, LogEnds],
    lookup: TimeLookup,
    *,
    latest_where_none_matches: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition by the limit. Named offsets stay as they are, wherever the log is.

    Raises OptionError if the limit names other partitions than are read, SourceError if no record is that new.
    """
    partitions = [(topic, partition) for topic in topics for partition in topic.partitions]
    if isinstance(limit, AllAt):
        return {
            (topic.name, partition): _at(limit.offset, ends[topic.name, partition]) for topic, partition in partitions
        }
    if not isinstance(limit, Since):
        _check_names(limit.of, {(topic.name, partition) for topic, partition in partitions})
    if isinstance(limit, EachAt):
        return {where: _at(offset, ends[where]) for where, offset in limit.of.items()}

    async def by_time(place: tuple[ChosenTopic, int]) -> tuple[TopicPartition, int]:
        topic, partition = place
        where = topic.name, partition
        timestamp_ms = limit.timestamp_ms if isinstance(limit, Since) else limit.of[where]
        offset = await lookup(topic, partition, timestamp_ms)
        if offset is None:
            if not latest_where_none_matches:
                raise SourceError(
                    f"{topic.name}-{partition} has no record of time {timestamp_ms} or later; set "
                    "startingOffsetsByTimestampStrategy to latest to begin at the end there"
                )
            offset = ends[where].end_offset
        return where, offset

    return dict(await gathered(by_time, partitions))


def _at(offset: int, ends: LogEnds) -> int:
    return {EARLIEST: ends.log_start_offset, LATEST: ends.end_offset}.get(offset, offset)


def _check_names(named: Mapping[TopicPartition, int], read: set[TopicPartition]) -> None:
    """Check, as Kafka's source does, that all partitions are named, and no others."""
    for what, difference in (
        ("is read but not named", read - set(named)),
        ("is named but not read", set(named) - read),
    ):
        if difference:
            topic, partition = min(difference)
            raise OptionError(
                f"offsets or times by partition have to name all partitions that are read, -1 is latest and -2 "
                f"earliest; {topic}-{partition} {what}"
            )
