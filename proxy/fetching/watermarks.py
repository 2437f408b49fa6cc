"""High watermarks and last stable offsets that the client of one connection got: a follower's lag by a round.

A value that the client got is not lowered again as long as the known leader epoch of the partition stays: a committed
record stays committed, and a decided transaction decided. After a change of leaders the new leader's value counts, even
if it is lower (an unclean election). The same holds for a topic that was recreated under its name: topics are
distinguished by their IDs.
"""

from __future__ import annotations

from typing import NamedTuple

_MAX_RECORDED = 10_000


class Ends(NamedTuple):
    """Ends of the readable part of a partition."""

    high_watermark: int
    last_stable_offset: int


class Watermarks:
    """Ends of the partitions that were read through one connection; if they become too many, all are dropped."""

    __slots__ = ("_count", "_recorded")

    def __init__(self) -> None:
        self._recorded: dict[bytes, dict[int, tuple[int, Ends]]] = {}
        """Leader epoch and ends, by topic ID and partition."""
        self._count = 0

    def record(self, topic_id: bytes, partition: int, leader_epoch: int, high_watermark: int, last_stable: int) -> Ends:
        """Return the ends to answer instead of these two, and keep them."""
        ends = Ends(high_watermark, last_stable)
        of_topic = self._recorded.get(topic_id)
        if of_topic is None:
            of_topic = self._recorded[topic_id] = {}
        before = of_topic.get(partition)
        if before is None:
            self._count += 1
            if self._count > _MAX_RECORDED:
                self._recorded, self._count = {topic_id: (of_topic := {})}, 1
        elif before[0] == leader_epoch:
            if before[1].high_watermark >= high_watermark and before[1].last_stable_offset >= last_stable:
                return before[1]
            ends = Ends(max(before[1].high_watermark, high_watermark), max(before[1].last_stable_offset, last_stable))
        of_topic[partition] = leader_epoch, ends
        return ends

    def last(self, topic_id: bytes, partition: int) -> Ends | None:
        """Return the last recorded ends; None if there are none."""
        before = self._recorded.get(topic_id, {}).get(partition)
        return None if before is None else before[1]

    def forget(self, topic_id: bytes, partition: int) -> None:
        """Drop the ends after an error of the leader: its log may be another one, of which the proxy does not know
        yet."""
        if self._recorded.get(topic_id, {}).pop(partition, None) is not None:
            self._count -= 1
