"""High watermarks and last stable offsets that the client of one connection was told: a follower's lag by a round.

What was told once is not told lower again while the leader epoch stays that is known of the partition: a committed
record stays committed, and a decided transaction decided. After a change of leaders the new one's word counts, also
where it is lower (an unclean election), and so it does for a topic that was made again under its name: topics are told
apart by their IDs.
"""

from __future__ import annotations

from typing import NamedTuple

_MAX_RECORDED = 10_000


class Ends(NamedTuple):
    """Up to where a partition can be read."""

    high_watermark: int
    last_stable_offset: int


class Watermarks:
    """Of the partitions that were read through one connection; when they become too many all are forgotten."""

    __slots__ = ("_count", "_told")

    def __init__(self) -> None:
        self._told: dict[bytes, dict[int, tuple[int, Ends]]] = {}
        """Leader epoch and ends, by topic ID and partition."""
        self._count = 0

    def told(self, topic_id: bytes, partition: int, leader_epoch: int, high_watermark: int, last_stable: int) -> Ends:
        """Return what is to be told in place of these two, and remember it."""
        ends = Ends(high_watermark, last_stable)
        of_topic = self._told.get(topic_id)
        if of_topic is None:
            of_topic = self._told[topic_id] = {}
        before = of_topic.get(partition)
        if before is None:
            self._count += 1
            if self._count > _MAX_RECORDED:
                self._told, self._count = {topic_id: (of_topic := {})}, 1
        elif before[0] == leader_epoch:
            if before[1].high_watermark >= high_watermark and before[1].last_stable_offset >= last_stable:
                return before[1]
            ends = Ends(max(before[1].high_watermark, high_watermark), max(before[1].last_stable_offset, last_stable))
        of_topic[partition] = leader_epoch, ends
        return ends

    def last(self, topic_id: bytes, partition: int) -> Ends | None:
        """What was told last; None if nothing was."""
        before = self._told.get(topic_id, {}).get(partition)
        return None if before is None else before[1]

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The leader answers an error: its log may be another one, of which nobody has told the proxy yet."""
        if self._told.get(topic_id, {}).pop(partition, None) is not None:
            self._count -= 1
