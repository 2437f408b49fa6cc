"""Produce requests of every version that stream through: count the bytes of records of each topic.

Nothing is changed and nothing held: a request that can't be read is left for the broker to reject.
"""

from __future__ import annotations

import struct

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import INT32, Buffer
from proxy.wire.produce import FIRST_FLEXIBLE
from proxy.wire.topic_walk import CountTopic, TopicWalk, count_single, count_whole

_INDEX_VARINT = struct.Struct(">4xBBBB")
_INDEX_LENGTH = struct.Struct(">4xi")


class ProduceStream(TopicWalk):
    """Takes one Produce request from its topics on, in chunks of any size; calls `count` with each topic and its
    bytes."""

    __slots__ = ("ended",)

    def __init__(self, version: int, count: CountTopic, *, begins_at: int = 0) -> None:
        """Skip `begins_at` bytes, which come before the topics."""
        flexible = version >= FIRST_FLEXIBLE
        super().__init__(version, locate_records if flexible else locate_plain_records, count, flexible=flexible)
        self.ended = False
        """True if nothing more needs to be looked at: the topics have come, or the request is not a Produce request."""
        self._skip = begins_at

    def feed(self, part: memoryview) -> None:
        """Look through the next bytes."""
        if self.ended or self.is_within_records(part):
            return
        try:
            self.ended = self.walk(part) >= 0
        except ProtocolError:
            self.ended = True

    def _begin_records(self, data: memoryview, at: int) -> int:
        size, at = self._length(data, at + INT32.size)
        self._records_begin(size)
        return at


def locate_records(data: Buffer, at: int) -> tuple[int, int]:
    """Return start and length of the records (-1 for null) of a partition, v9 and later, that begins at `at`.

    Start 0 means that the length takes five bytes, and must be read as any varint.
    """
    first, second, third, fourth = _INDEX_VARINT.unpack_from(data, at)
    if first < 0x80:
        return at + 5, first - 1
    if second < 0x80:
        return at + 6, first + (second << 7) - 0x81
    if third < 0x80:
        return at + 7, first + (second << 7) + (third << 14) - 0x4081
    if fourth < 0x80:
        return at + 8, first + (second << 7) + (third << 14) + (fourth << 21) - 0x204081
    return 0, 0


def locate_plain_records(data: Buffer, at: int) -> tuple[int, int]:
    """Return start and length of the records before v9; length -1 is null."""
    return at + 8, _INDEX_LENGTH.unpack_from(data, at)[0]


def count_produced(frame: memoryview, topics_at: int, version: int, count: CountTopic) -> None:
    """Call `count` with each topic of a request frame that is whole; unreadable topics are not counted."""
    flexible = version >= FIRST_FLEXIBLE
    locate = locate_records if flexible else locate_plain_records
    if count_single(frame, len(frame), topics_at, version, locate, count, flexible=flexible):
        return
    if not count_whole(frame, topics_at, version, locate, count, flexible=flexible):
        walk = ProduceStream(version, count, begins_at=topics_at)
        walk.feed(frame)
        walk.count()
