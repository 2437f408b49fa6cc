"""Walking over the topics of a message while it streams through: how many bytes of records each topic has.

What Produce requests and Fetch responses have in common: an array of topics (name, or ID from v13 on), each with an
array of partitions, each with records. Nothing is held but the beginning of a piece that a chunk has cut.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import INT16, INT32, Buffer, read_length, skip_string, skip_tags

_SMALL_WINDOW_BYTES = 512
_FIRST_TOPIC_ID = 13
"""First version of Produce and of Fetch with topic IDs (KIP-516)."""
_FEW_TOPICS = 100
_TOPICS_NAME = struct.Struct(">ih")
_COMPACT_ONE = 2
_EMPTY_TAGS = 3
CountTopic = Callable[[str | bytes, int], None]
"""Called with each topic that has records, by name or ID as in the message, and the bytes of its records."""
Locate = Callable[[memoryview, int], tuple[int, int]]
"""Start and length of the records of the partition that begins at a position; length -1 is null. Start 0 means that the
partition must be read field by field. Raises IndexError or struct.error if too little has come."""


class TopicWalk:
    """Takes a message in chunks of any size, and counts; a subclass knows what comes before the records.

    Pieces are methods that take data and a position and return the position after the piece. They raise IndexError or
    struct.error if it is not whole, before they change anything, and ProtocolError for what no sender may write.
    """

    held_bytes_max = 65_536
    """Longest piece that is held until it is whole; more is rejected."""

    __slots__ = (
        "_carry",
        "_count_topic",
        "_flexible",
        "_locate",
        "_partitions",
        "_skip",
        "_state",
        "_topic",
        "_topic_began",
        "_topic_ids",
        "_topics",
        "record_bytes",
        "walked",
    )

    def __init__(self, version: int, locate: Locate, count: CountTopic, *, flexible: bool) -> None:
        self.record_bytes = 0
        """Bytes of records that have come since the first topic's name."""
        self.walked = False
        """The end of the topics was reached."""
        self._count_topic = count
        self._locate = locate
        self._flexible = flexible
        self._topic_ids = version >= _FIRST_TOPIC_ID
        self._state: Callable[[memoryview, int], int] = self._array_of_topics
        self._carry = b""
        self._skip = 0
        self._topics = 0
        self._partitions = 0
        self._topic: bytes | None = None
        self._topic_began = 0

    def count(self) -> None:
        """Count what has come of the present topic, for a message that ends too early."""
        if self._topic is not None and (size := self.record_bytes - self._topic_began):
            self._topic_began = self.record_bytes
            self._count_topic(self._topic if self._topic_ids else str(self._topic, "utf-8", "replace"), size)

    def is_within_records(self, view: memoryview) -> bool:
        """Return whether the next bytes are records, and not the last of their partition; then they are taken."""
        if self._skip <= len(view):
            return False
        self._skip -= len(view)
        self.record_bytes += len(view)
        return True

    def walk(self, view: memoryview) -> int:
        """Take the next bytes; return the position of the end of the topics, -1 if they go on. Raises ProtocolError."""
        start = self._walk_carry(view) if self._carry else 0
        if start < 0:
            return -1
        at = start + self._walk(view[start:] if start else view)
        if self.walked:
            return at
        if at < len(view):
            self._carry = view[at:].tobytes()
        return -1

    def _walk_carry(self, view: memoryview) -> int:
        """Walk over the piece that an earlier chunk began; return its end in `view`, -1 if it is not in there."""
        carry = self._carry
        window = _SMALL_WINDOW_BYTES
        while True:
            taken = self._walk(memoryview(carry + view[:window]))
            if taken:
                self._carry = b""
                return taken - len(carry)
            if window >= len(view):
                self._carry = carry + view
                if len(self._carry) > self.held_bytes_max:
                    raise ProtocolError(f"a partition has {len(self._carry)} bytes before records")
                return -1
            window *= 8

    def _walk(self, data: memoryview) -> int:
        """Walk over whole pieces, and over records as far as they go; how many bytes that was."""
        at, end = 0, len(data)
        while True:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                self.record_bytes += step
                at += step
                if self._skip:
                    return at
            if self.walked:
                return at
            try:
                at = self._state(data, at)
            except (IndexError, struct.error):
                return at

    def _array_of_topics(self, data: memoryview, at: int) -> int:
        self._topics, at = self._length(data, at)
        self._next_topic()
        return at

    def _begin_topic(self, data: memoryview, at: int) -> int:
        start = at
        at = at + 16 if self._topic_ids else skip_string(data, at, self._flexible)
        name_ends = at
        self._partitions, at = self._length(data, at)
        if self._topic_ids:
            self._topic = data[start:name_ends].tobytes()
        else:
            _, start = read_length(data, start) if self._flexible else (0, start + 2)
            self._topic = data[start:name_ends].tobytes()
        self._topic_began = self.record_bytes
        self._next_partition()
        return at

    def _partition(self, data: memoryview, at: int) -> int:
        return self._whole_partitions(data, at) or self._begin_records(data, at)

    def _begin_records(self, data: memoryview, at: int) -> int:
        """To the first byte of the records of a partition, field by field; it ends with `_records_begin`."""
        raise NotImplementedError

    def _whole_partitions(self, data: memoryview, at: int) -> int:
        """The hot loop: over partitions that are whole and plain, as nearly all are; 0 if not even one is."""
        begin, end, left, record_bytes = at, len(data), self._partitions, 0
        flexible, locate = self._flexible, self._locate
        with suppress(IndexError, struct.error):
            while left:
                start, length = locate(data, at)
                behind = start + length if length > 0 else start
                if not start or length < -1 or behind > end:
                    break
                if flexible:
                    if data[behind]:
                        break
                    behind += 1
                at = behind
                left -= 1
                record_bytes += length if length > 0 else 0
        if at == begin:
            return 0
        self._partitions = left
        self.record_bytes += record_bytes
        if not left:
            self._next_partition()
        return at

    def _records_begin(self, size: int) -> None:
        # Counted as they come: what a client announces may never do.
        self._skip = size
        self._state = self._partition_tags if self._flexible else self._records_end

    def _records_end(self, data: memoryview, at: int) -> int:
        self._partition_ends()
        return at

    def _partition_tags(self, data: memoryview, at: int) -> int:
        at = whole_tags(data, at)
        self._partition_ends()
        return at

    def _topic_tags(self, data: memoryview, at: int) -> int:
        at = whole_tags(data, at)
        self._topic_ends()
        return at

    def _length(self, data: memoryview, at: int) -> tuple[int, int]:
        """Return an array's or the records' length; 0 if null."""
        if self._flexible:
            count, at = read_length(data, at)
        else:
            (count,) = INT32.unpack_from(data, at)
            at += 4
        if count < -1:
            raise ProtocolError(f"a length is {count}")
        return max(count, 0), at

    def _next_topic(self) -> None:
        if self._topics:
            self._state = self._begin_topic
        else:
            self.walked = True

    def _next_partition(self) -> None:
        if self._partitions:
            self._state = self._partition
        elif self._flexible:
            self._state = self._topic_tags
        else:
            self._topic_ends()

    def _partition_ends(self) -> None:
        self._partitions -= 1
        self._next_partition()

    def _topic_ends(self) -> None:
        self.count()
        self._topics -= 1
        self._next_topic()


def whole_tags(data: Buffer, at: int) -> int:
    """Do the same as `skip_tags`; raise IndexError if the section is not whole."""
    at = skip_tags(data, at)
    if at > len(data):
        raise IndexError
    return at


def count_single(
    head: memoryview, size: int, at: int, version: int, locate: Locate, count: CountTopic, *, flexible: bool
) -> bool:
    """Count a message of `size` bytes of which `head` has come, if all it has is records of one partition.

    Return whether that is so: then the lengths add up to its size, with an empty section of tagged fields after
    partition, topic and topics. `at` is the position of the array of topics.
    """
    try:
        if flexible:
            name_bytes = 16 if version >= _FIRST_TOPIC_ID else head[at + 1] - 1
            name_at = at + 1 if version >= _FIRST_TOPIC_ID else at + 2
            partitions_at = name_at + name_bytes
            if head[at] != _COMPACT_ONE or head[partitions_at] != _COMPACT_ONE or not 0 < name_bytes < 0x7F:
                return False
            start, length = locate(head, partitions_at + 1)
            if length < 1 or start + length + _EMPTY_TAGS != size:
                return False
        else:
            topics, name_bytes = _TOPICS_NAME.unpack_from(head, at)
            name_at = at + _TOPICS_NAME.size
            partitions_at = name_at + name_bytes
            if topics != 1 or name_bytes < 1 or INT32.unpack_from(head, partitions_at)[0] != 1:
                return False
            start, length = locate(head, partitions_at + INT32.size)
            if length < 1 or start + length != size:
                return False
        name = head[name_at:partitions_at]
        topic = name.tobytes() if version >= _FIRST_TOPIC_ID else str(name, "utf-8")
    except (IndexError, struct.error, UnicodeDecodeError):
        return False
    count(topic, length)
    return True


def count_whole(data: memoryview, at: int, version: int, locate: Locate, count: CountTopic, *, flexible: bool) -> bool:
    """Count a message that is whole, from its array of topics on, without the steps of a walk.

    Return whether it was plain: few topics, no tagged fields, nothing after them. If it was not, nothing is counted.
    """
    found = []
    try:
        topics, at = (data[at] - 1, at + 1) if flexible else (INT32.unpack_from(data, at)[0], at + 4)
        if not 0 <= topics <= _FEW_TOPICS:
            return False
        for _ in range(topics):
            if version >= _FIRST_TOPIC_ID:
                start, at = at, at + 16
            elif flexible:
                length = data[at]
                if not 0 < length < 0x80:
                    return False
                start, at = at + 1, at + length
            else:
                (length,) = INT16.unpack_from(data, at)
                start, at = at + 2, at + 2 + max(length, 0)
            name, size = data[start:at], 0
            partitions, at = read_length(data, at) if flexible else (INT32.unpack_from(data, at)[0], at + 4)
            for _ in range(partitions):
                start, length = locate(data, at)
                if not start or length < -1:
                    return False
                at = start
                if length > 0:
                    at += length
                    size += length
                if flexible:
                    if data[at]:
                        return False
                    at += 1
            if flexible:
                if data[at]:
                    return False
                at += 1
            if size:
                found.append((name, size))
        if flexible:
            if data[at]:
                return False
            at += 1
        if at != len(data):
            return False
        named = [(one.tobytes() if version >= _FIRST_TOPIC_ID else str(one, "utf-8"), size) for one, size in found]
    except (IndexError, struct.error, UnicodeDecodeError, ProtocolError):
        return False
    for topic, size in named:
        count(topic, size)
    return True
