"""Produce requests of one partition, and their plain answers, by their bytes: for the express lane (decision 0120).

Of two such requests of one client for one topic, only the size, the correlation ID, the partition and the records
differ. The rest is one run of bytes.
"""

from __future__ import annotations

import struct

from proxy.wire.primitives import INT32
from proxy.wire.produce import FIRST_FLEXIBLE, FIRST_TOPIC_ID
from proxy.wire.produce_stream import locate_plain_records, locate_records

_TOPICS_NAME = struct.Struct(">ih")
_COMPACT_ONE = 2
_LONGEST_COMPACT = 0x7F
_NO_MORE_TAGS = bytes(3)
"""The empty sections of tagged fields after the partition, the topic and the request."""
_SHORTEST_PARTITION_BYTES = 8
_FIRST_NODE_ENDPOINTS = 10
_ANSWER_BODY_AT = 9
"""Position of the body in an answer with its size and the flexible header without tagged fields."""
_PLAIN_ANSWER = bytes((1, 0, 0, 0))
"""No record errors, no message, and no tagged fields after the partition and the topic."""
_PARTITION_ANSWER_BYTES = 30
"""Index, error code, base offset, append time, and log start offset."""
_THROTTLE_AND_TAGS_BYTES = 5


def read_only_partition(frame: memoryview, topics_at: int, version: int) -> tuple[str | bytes, int] | None:
    """Return the topic of a request frame (without its size) of one partition, and where that partition begins.

    None if it names more or fewer, if the name is unusual, or if that much of the frame has not come.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            by_id = version >= FIRST_TOPIC_ID
            name_at = topics_at + (1 if by_id else 2)
            name_bytes = 16 if by_id else frame[topics_at + 1] - 1
            partitions_at = name_at + name_bytes
            if frame[topics_at] != _COMPACT_ONE or frame[partitions_at] != _COMPACT_ONE:
                return None
            if not 0 < name_bytes < _LONGEST_COMPACT:
                return None
            name = frame[name_at:partitions_at]
            return (bytes(name) if by_id else str(name, "utf-8")), partitions_at + 1
        topics, name_bytes = _TOPICS_NAME.unpack_from(frame, topics_at)
        name_at = topics_at + _TOPICS_NAME.size
        partitions_at = name_at + name_bytes
        if topics != 1 or name_bytes < 1 or INT32.unpack_from(frame, partitions_at)[0] != 1:
            return None
        return str(frame[name_at:partitions_at], "utf-8"), partitions_at + INT32.size
    except (IndexError, struct.error, UnicodeDecodeError):
        return None


def record_bytes(data: bytes, partition_at: int, *, flexible: bool) -> int:
    """Return the length of the records of a request that ends with this partition; 0 if it ends otherwise.

    `data` is the whole request. A request without records, or with tagged fields after them, is one of the others.
    """
    if len(data) < partition_at + _SHORTEST_PARTITION_BYTES:
        return 0
    if flexible:
        start, length = locate_records(data, partition_at)
        whole = start + length + len(_NO_MORE_TAGS) == len(data) and data.endswith(_NO_MORE_TAGS)
    else:
        start, length = locate_plain_records(data, partition_at)
        whole = start + length == len(data)
    return length if whole and length > 0 else 0


class PlainAnswer:
    """Recognizes the broker's answers that have one partition and no tagged fields (v10 and later)."""

    __slots__ = ("_begins", "_size", "_tail_at")

    def __init__(self, topic: str | bytes) -> None:
        name = topic if isinstance(topic, bytes) else bytes((len(topic.encode()) + 1,)) + topic.encode()
        self._begins = b"\0" + bytes((_COMPACT_ONE,)) + name + bytes((_COMPACT_ONE,))
        self._tail_at = _ANSWER_BODY_AT - 1 + len(self._begins) + _PARTITION_ANSWER_BYTES
        self._size = self._tail_at + len(_PLAIN_ANSWER) + _THROTTLE_AND_TAGS_BYTES

    def is_plain(self, frame: bytes) -> bool:
        """Return whether an answer, with its size, has no node endpoints, and nothing else that is to be read."""
        return (
            len(frame) == self._size
            and frame.startswith(self._begins, _ANSWER_BODY_AT - 1)
            and frame.startswith(_PLAIN_ANSWER, self._tail_at)
            and not frame[-1]
        )


def plain_answer(topic: str | bytes, version: int) -> PlainAnswer | None:
    """Return what recognizes plain answers; None if answers of the version are never rewritten."""
    return PlainAnswer(topic) if version >= _FIRST_NODE_ENDPOINTS else None
