"""A walk over a Fetch response that tells where each partition's answer lies, so that answers can be put together anew.

Behaviour: nothing is copied and records are not looked at. A partition's answer is one piece of the body, and may stand
in any other response of the same version; `lowered` makes one of v11 into those of v4 to v10, which followers don't
answer to consumers (KIP-392).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import FIRST_FLEXIBLE, FIRST_RACK, FIRST_SESSION, write_topic
from proxy.wire.fetch_response import read_head, read_partition, read_topic
from proxy.wire.primitives import INT32, INT64, NO_TAGS, Buffer, check_end, parsing, skip_tags, write_count

LOWERED_FROM = FIRST_RACK
"""The version that is asked for in place of older ones: the last that differs from them in a few bytes only."""

_FLEXIBLE = struct.Struct(">ihq16xBiBBBB")
"""Of a partition from v12 on: index, error code, high watermark, compact number of aborted transactions, preferred
replica, four bytes from the length of the records on. The smallest last partition has so many bytes behind it."""
_V11 = struct.Struct(">ihq16xiii")
"""Of a partition of v11: index, error code, high watermark, number of aborted transactions, preferred replica, length
of the records."""
_HIGH_WATERMARK_AT = 6
_LOG_START_AT = 22
_LOG_START_END = 30
_NO_REPLICA = -1


class PartitionAt(NamedTuple):
    """One partition's answer, by positions in the body."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    error_code: int
    high_watermark: int
    plain: bool
    """It names no preferred replica and has no tagged fields."""
    start: int
    records: int
    """Where they begin."""
    record_bytes: int
    end: int


class TopicAt(NamedTuple):
    """The answers for one topic."""

    topic: str | bytes
    partitions: list[PartitionAt]


class FetchWalk(NamedTuple):
    """Where everything lies."""

    version: int
    body: memoryview
    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[TopicAt]
    tail: int
    """Where the topics end."""


@parsing
def walk_fetch_response(body: Buffer, version: int) -> FetchWalk:
    """Walk over the body of a response. Raises ProtocolError."""
    data = memoryview(body)
    _, error_code, session_id, count, at = read_head(data, version)
    topics: list[TopicAt] = []
    for _ in range(count):
        topic, partition_count, at = read_topic(data, at, version)
        partitions: list[PartitionAt] = []
        if version >= FIRST_FLEXIBLE:
            at = skip_tags(data, _walk_flexible(data, at, version, partition_count, partitions))
        elif version == FIRST_RACK:
            at = _walk_v11(data, at, partition_count, partitions)
        else:
            for _ in range(partition_count):
                at = _walk_any(data, at, version, partitions)
        check_end(data, at)
        topics.append(TopicAt(topic, partitions))
    check_end(data, skip_tags(data, at) if version >= FIRST_FLEXIBLE else at)
    return FetchWalk(version, data, INT32.unpack_from(data)[0], error_code, session_id, topics, at)


def _walk_flexible(data: memoryview, at: int, version: int, count: int, into: list[PartitionAt]) -> int:
    """The hot loop: the length of the records is read in line from four bytes at once."""
    unpack, append, make = _FLEXIBLE.unpack_from, into.append, tuple.__new__
    for _ in range(count):
        index, error_code, high_watermark, aborted, preferred, first, second, third, fourth = unpack(data, at)
        if aborted > 1:
            start = 0
        elif first < 0x80:
            start, length = at + 36, first - 1
        elif second < 0x80:
            start, length = at + 37, first + (second << 7) - 0x81
        elif third < 0x80:
            start, length = at + 38, first + (second << 7) + (third << 14) - 0x4081
        elif fourth < 0x80:
            start, length = at + 39, first + (second << 7) + (third << 14) + (fourth << 21) - 0x204081
        else:
            start = 0
        if not start:
            at = _walk_any(data, at, version, into)
            continue
        if length < 0:
            length = 0
        end, plain = start + length, preferred == _NO_REPLICA
        if data[end]:
            plain, end = False, skip_tags(data, end)
        else:
            end += 1
        append(make(PartitionAt, (index, error_code, high_watermark, plain, at, start, length, end)))
        at = end
    return at


def _walk_v11(data: memoryview, at: int, count: int, into: list[PartitionAt]) -> int:
    unpack, append, make, size = _V11.unpack_from, into.append, tuple.__new__, _V11.size
    for _ in range(count):
        index, error_code, high_watermark, aborted, preferred, length = unpack(data, at)
        if aborted > 0 or length < 0:
            at = _walk_any(data, at, FIRST_RACK, into)
            continue
        start = at + size
        end = start + length
        append(make(PartitionAt, (index, error_code, high_watermark, preferred == _NO_REPLICA, at, start, length, end)))
        at = end
    check_end(data, at)
    return at


def _walk_any(data: memoryview, at: int, version: int, into: list[PartitionAt]) -> int:
    fields, _, preferred, records, records_end, end = read_partition(data, at, version)
    length = max(records_end - records, 0)
    tags = end - records - length if version >= FIRST_FLEXIBLE else 1
    plain = preferred == _NO_REPLICA and tags == 1
    into.append(PartitionAt(fields[0], fields[1], fields[2], plain, at, records, length, end))
    return end


def piece(walk: FetchWalk, partition: PartitionAt, version: int, high_watermark: int) -> list[Buffer]:
    """A partition's answer with that high watermark, as it stands in a response of `version`.

    `version` is the walk's own or, where that is LOWERED_FROM, any lower one.
    """
    data = walk.body
    if version == walk.version:
        if high_watermark == partition.high_watermark:
            return [data[partition.start : partition.end]]
        at = partition.start + _HIGH_WATERMARK_AT
        return [
            data[partition.start : at].tobytes() + INT64.pack(high_watermark),
            data[at + INT64.size : partition.end],
        ]
    head = bytearray()
    _lower_head(data, partition, version, high_watermark, head)
    return [bytes(head), data[partition.records : partition.end]] if partition.record_bytes else [bytes(head)]


def _lower_head(data: memoryview, partition: PartitionAt, version: int, high_watermark: int, into: bytearray) -> None:
    """What stands before the records: v11 has four bytes more than v5 to v10, and twelve more than v4."""
    start, records = partition.start, partition.records
    into += data[start : start + _HIGH_WATERMARK_AT]
    into += INT64.pack(high_watermark)
    if version >= 5:
        into += data[start + 14 : records - 8]
    else:
        into += data[start + 14 : start + _LOG_START_AT]
        into += data[start + _LOG_START_END : records - 8]
    into += data[records - 4 : records]


def lowered(walk: FetchWalk, version: int) -> list[Buffer]:
    """A whole response of v11 in an older version, with session 0 and without error; records by reference."""
    if walk.version != LOWERED_FROM or version >= LOWERED_FROM:
        raise ProtocolError(f"a Fetch response of v{walk.version} can't become one of v{version}")
    data, buffers = walk.body, list[Buffer]()
    small = bytearray(response_head(version, walk.throttle_ms, 0))
    small += write_count(len(walk.topics), False)
    for topic, partitions in walk.topics:
        small += write_topic(topic, version)
        small += write_count(len(partitions), False)
        for partition in partitions:
            _lower_head(data, partition, version, partition.high_watermark, small)
            if partition.record_bytes:
                buffers.append(bytes(small))
                buffers.append(data[partition.records : partition.end])
                small.clear()
    if small:
        buffers.append(bytes(small))
    return buffers


def response_head(version: int, throttle_ms: int, error_code: int) -> bytes:
    """What comes before the number of topics, with session 0."""
    if version < FIRST_SESSION:
        return INT32.pack(throttle_ms)
    return struct.pack(">ihi", throttle_ms, error_code, 0)


def response_tail(walk: FetchWalk) -> memoryview | bytes:
    """What comes behind the topics."""
    return walk.body[walk.tail :] if walk.version >= FIRST_FLEXIBLE else b""


def has_no_tail(walk: FetchWalk) -> bool:
    """Whether nothing comes behind the topics but, from v12 on, an empty section of tagged fields."""
    tail = walk.body[walk.tail :]
    return tail == NO_TAGS if walk.version >= FIRST_FLEXIBLE else not tail
