"""High watermarks that the client of one connection was told: a follower's lags by a round, and would jump about.

What was told once is not told lower again while the leader epoch stays that is known of the partition: a committed
record stays committed. After a change of leaders the new one's word counts, also where it is lower (an unclean
election), and so it does for a topic that was made again under its name: topics are told apart by their IDs.
"""

from __future__ import annotations

_MAX_TOLD = 10_000


class Watermarks:
    """Of the partitions that were read through one connection; when they become too many all are forgotten."""

    __slots__ = ("_count", "_told")

    def __init__(self) -> None:
        self._told: dict[bytes, dict[int, tuple[int, int]]] = {}
        """Leader epoch and high watermark, by topic ID and partition."""
        self._count = 0

    def told(self, topic_id: bytes, partition: int, leader_epoch: int, high_watermark: int) -> int:
        """What is to be told in place of `high_watermark`, and is remembered."""
        of_topic = self._told.get(topic_id)
        if of_topic is None:
            of_topic = self._told[topic_id] = {}
        before = of_topic.get(partition)
        if before is None:
            self._count += 1
            if self._count > _MAX_TOLD:
                self._told, self._count = {topic_id: (of_topic := {})}, 1
        elif before[0] == leader_epoch and before[1] >= high_watermark:
            return before[1]
        of_topic[partition] = leader_epoch, high_watermark
        return high_watermark

    def last(self, topic_id: bytes, partition: int) -> int:
        """What was told last; -1 where nothing was."""
        return self._told.get(topic_id, {}).get(partition, (0, -1))[1]

    def forget(self, topic_id: bytes, partition: int) -> None:
        """The leader answers an error: its log may be another one, of which nobody has told the proxy yet."""
        if self._told.get(topic_id, {}).pop(partition, None) is not None:
            self._count -= 1
