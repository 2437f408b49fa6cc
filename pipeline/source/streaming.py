"""The reads of a stream with each trigger: the logic of `stream.py`, without Spark and without I/O of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pipeline.source.follow import lose
from pipeline.source.limits import TopicPartition
from pipeline.source.options import SourceOptions
from pipeline.source.reach import LogEnds
from pipeline.source.selection import ChosenTopic
from pipeline.source.splits import LogRange
from pipeline.source.stream_offsets import StreamOffsets, TopicOffsets, admitted


class Sight(NamedTuple):
    """The topics that a stream reads, and the ends of their logs, at one moment."""

    topics: Sequence[ChosenTopic]
    ends: Mapping[TopicPartition, LogEnds]

    def latest(self) -> dict[str, TopicOffsets]:
        """Return the ends of all logs."""
        return self.offsets_at({where: one.end_offset for where, one in self.ends.items()})

    def offsets_at(self, offsets: Mapping[TopicPartition, int]) -> dict[str, TopicOffsets]:
        """The same with other offsets; a partition that has none is left out."""
        by_name: dict[str, dict[int, int]] = {topic.name: {} for topic in self.topics}
        for (name, partition), offset in offsets.items():
            by_name[name][partition] = offset
        return {topic.name: TopicOffsets(topic.topic_id, by_name[topic.name]) for topic in self.topics}


def starts(
    start: StreamOffsets, sight: Sight, lost: Callable[[str], None]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the offset from which each existing partition is read; new partitions and topics from their beginning.

    Also return the places of partitions that are missing although their topics exist: they are kept, because the
    partitions may come back. `lost` is called for topics that are gone or replaced, for such partitions, and for
    records that were deleted before a new partition was first read.
    """
    there = {topic.name: topic for topic in sight.topics}
    for name, of in start.items():
        if name not in there:
            lost(f"{name} was deleted, or is chosen no longer; it was read up to {dict(of.offsets)}")
        elif there[name].topic_id != of.topic_id:
            lost(f"{name} was deleted and recreated; the rest of the old topic is gone")
    froms: dict[TopicPartition, int] = {}
    unseen: dict[TopicPartition, int] = {}
    for topic in sight.topics:
        known = _known(start, topic.name, topic.topic_id)
        for partition, offset in known.items():
            if (topic.name, partition) not in sight.ends:
                lost(f"{topic.name}-{partition} was deleted, or is chosen no longer; it was read up to {offset}")
                unseen[topic.name, partition] = offset
        for partition in topic.partitions:
            ends = sight.ends.get((topic.name, partition))
            if ends is None:
                continue
            begin = ends.log_start_offset
            if partition not in known and begin > 0:
                lost(
                    f"{topic.name}-{partition} is new and begins at offset {begin}; those before it were deleted "
                    "before they were read"
                )
            froms[topic.name, partition] = known.get(partition, begin)
    return froms, unseen


def _known(offsets: StreamOffsets, name: str, topic_id: bytes) -> Mapping[int, int]:
    """Return the places in a topic; none if it is another topic of that name."""
    of = offsets.get(name)
    return of.offsets if of is not None and of.topic_id == topic_id else {}


class Triggers:
    """Decides the end of a trigger. `now_s` is a clock for `maxTriggerDelay`."""

    def __init__(self, options: SourceOptions, now_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._now_s = now_s
        self._last_s = now_s()
        self._told: set[str] = set()
        """Accepted losses, each reported once, because Spark asks again and again."""

    def end(self, start: StreamOffsets, sight: Sight, *, most: int | None, wait: bool) -> StreamOffsets:
        """Return the end of the next micro-batch: `start` itself if there is nothing to read.

        `most` is the maximum number of offsets in all, None for no limit. `wait` says whether `minOffsetsPerTrigger`
        counts. Raises DataLoss.
        """
        froms, unseen = starts(start, sight, self._lose)
        available: dict[TopicPartition, int] = {}
        for (topic, partition), offset in froms.items():
            ends = sight.ends[topic, partition]
            until = ends.end_offset
            if ends.high_watermark < offset:
                self._lose(f"{topic}-{partition} ends at offset {ends.high_watermark}, and was read up to {offset}")
            elif until < offset:
                until = offset  # it was read up to there under `read_uncommitted`: nothing is lost
            available[topic, partition] = until - offset
        waiting = sum(max(0, count) for count in available.values())
        least = self._options.min_offsets_per_trigger
        delay_s = self._options.max_trigger_delay_ms / 1000
        if wait and least is not None and waiting < least and self._now_s() - self._last_s < delay_s:
            return start
        self._last_s = self._now_s()
        taken = available
        if most is not None:
            taken = available | admitted({where: count for where, count in available.items() if count > 0}, most)
        return sight.offsets_at(unseen | {where: froms[where] + count for where, count in taken.items()})

    def _lose(self, text: str) -> None:
        if text not in self._told:
            lose(text, self._options.fail_on_data_loss)
            self._told.add(text)


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[LogRange]:
    """Return the ranges of a micro-batch.

    Partitions and topics that `start` does not have are read from offset 0: records that are missing when they are read
    are a loss, even if a micro-batch is run again later.
    """
    ranges = []
    for name, of in end.items():
        known = _known(start, name, of.topic_id)
        for partition, until in of.offsets.items():
            first = known.get(partition, 0)
            if first < until:
                ranges.append(LogRange(name, of.topic_id, partition, first, until))
    return ranges
