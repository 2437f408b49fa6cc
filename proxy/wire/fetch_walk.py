"""A walk over a Fetch response that finds the position of each partition's answer, so that answers can be recombined.

Behaviour: nothing is copied and records are not looked at. A partition's answer is one piece of the body, and fits in
any other response of the same version. `lowered` converts a response that names topics by ID (KIP-516) to an older
version.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import FIRST_FLEXIBLE, FIRST_RACK, FIRST_SESSION, FIRST_TOPIC_ID, write_topic
from proxy.wire.fetch_response import read_head, read_partition, read_topic
from proxy.wire.primitives import INT32, INT64, NO_TAGS, Buffer, check_end, skip_tags, write_count
from proxy.wire.steps import AT_A_TIME, Pace, Pausing, Steps

LOWERED_FROM = FIRST_TOPIC_ID
"""The version that is asked for in place of older ones: by its ID no other topic is read that had the name before."""
FIRST_LOG_START = 5

_FLEXIBLE = struct.Struct(">ihqq8xBiBBBB")
"""Fields of a partition from v12 on: index, error code, high watermark, last stable offset, compact number of aborted
transactions, preferred replica, and four bytes that begin with the length of the records. Even the smallest last
partition is followed by that many bytes."""
_V11 = struct.Struct(">ihqq8xiii")
"""Fields of a partition of v11: index, error code, high watermark, last stable offset, number of aborted transactions,
preferred replica, length of the records."""
_HIGH_WATERMARK_AT = 6
_ENDS = struct.Struct(">qq")
"""High watermark and last stable offset."""
_NO_REPLICA = -1
_ABORTED = struct.Struct(">qq")
_FIXED = struct.Struct(">ihqqqB")
"""Fields of a partition from v12 on, up to the log start, and the first byte of the number of aborted transactions."""
_V4_HEAD = struct.Struct(">ihqq")
_V11_HEAD = struct.Struct(">ihqqqiii")
"""Fields of a partition before its records, without aborted transactions."""


class PartitionAt(NamedTuple):
    """One partition's answer, by positions in the body."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    error_code: int
    high_watermark: int
    last_stable_offset: int
    plain: bool
    """It names no preferred replica and has no tagged fields."""
    start: int
    records: int
    """Position of the records."""
    record_bytes: int
    end: int


class TopicAt(NamedTuple):
    """The answers for one topic."""

    topic: str | bytes
    partitions: list[PartitionAt]


class FetchWalk(NamedTuple):
    """The positions of all answers in a body."""

    version: int
    body: memoryview
    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[TopicAt]
    tail: int
    """Position of the end of the topics."""


@Pausing
def walk_fetch_response(body: Buffer, version: int) -> Steps[FetchWalk]:
    """Walk over the body of a response. Raises ProtocolError."""
    data = memoryview(body)
    error_code, session_id, count, at = read_head(data, version)
    topics: list[TopicAt] = []
    pace = Pace()
    for _ in range(count):
        topic, partition_count, at = read_topic(data, at, version)
        partitions: list[PartitionAt] = []
        while partition_count > AT_A_TIME:
            at = _walk_some(data, at, version, AT_A_TIME, partitions)
            partition_count -= AT_A_TIME
            yield
        at = _walk_some(data, at, version, partition_count, partitions)
        if version >= FIRST_FLEXIBLE:
            at = skip_tags(data, at)
        check_end(data, at)
        if pace.pauses(partition_count + 1):
            yield
        topics.append(TopicAt(topic, partitions))
    check_end(data, skip_tags(data, at) if version >= FIRST_FLEXIBLE else at)
    return FetchWalk(version, data, INT32.unpack_from(data)[0], error_code, session_id, topics, at)


def _walk_some(data: memoryview, at: int, version: int, count: int, into: list[PartitionAt]) -> int:
    if version >= FIRST_FLEXIBLE:
        return _walk_flexible(data, at, version, count, into)
    if version == FIRST_RACK:
        return _walk_v11(data, at, count, into)
    for _ in range(count):
        at = _walk_any(data, at, version, into)
    return at


def _walk_flexible(data: memoryview, at: int, version: int, count: int, into: list[PartitionAt]) -> int:
    """The hot loop: the length of the records is read in line from four bytes at once."""
    unpack, append, make = _FLEXIBLE.unpack_from, into.append, tuple.__new__
    for _ in range(count):
        index, error_code, high_watermark, last_stable, aborted, preferred, first, second, third, fourth = unpack(
            data, at
        )
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
        append(make(PartitionAt, (index, error_code, high_watermark, last_stable, plain, at, start, length, end)))
        at = end
    return at


def _walk_v11(data: memoryview, at: int, count: int, into: list[PartitionAt]) -> int:
    unpack, append, make, size = _V11.unpack_from, into.append, tuple.__new__, _V11.size
    for _ in range(count):
        index, error_code, high_watermark, last_stable, aborted, preferred, length = unpack(data, at)
        if aborted > 0 or length < 0:
            at = _walk_any(data, at, FIRST_RACK, into)
            continue
        start = at + size
        end = start + length
        plain = preferred == _NO_REPLICA
        append(make(PartitionAt, (index, error_code, high_watermark, last_stable, plain, at, start, length, end)))
        at = end
    check_end(data, at)
    return at


def _walk_any(data: memoryview, at: int, version: int, into: list[PartitionAt]) -> int:
    fields, _, preferred, records, records_end, end = read_partition(data, at, version)
    length = max(records_end - records, 0)
    tags = end - records - length if version >= FIRST_FLEXIBLE else 1
    plain = preferred == _NO_REPLICA and tags == 1
    into.append(PartitionAt(fields[0], fields[1], fields[2], fields[3], plain, at, records, length, end))
    return end


def piece(walk: FetchWalk, partition: PartitionAt, version: int, ends: tuple[int, int]) -> list[Buffer]:
    """Return a partition's answer with those ends, as it stands in a response of `version`.

    `ends` is high watermark and last stable offset. `version` is the walk's own or, if that is LOWERED_FROM or newer,
    any lower version.
    """
    data = walk.body
    if version == walk.version or version >= FIRST_FLEXIBLE:
        if ends == (partition.high_watermark, partition.last_stable_offset):
            return [data[partition.start : partition.end]]
        at = partition.start + _HIGH_WATERMARK_AT
        return [
            data[partition.start : at].tobytes() + _ENDS.pack(*ends),
            data[at + _ENDS.size : partition.end],
        ]
    head = bytearray()
    _lower_head(data, partition, version, ends, head)
    records = partition.records
    return [bytes(head), data[records : records + partition.record_bytes]] if partition.record_bytes else [bytes(head)]


def _lower_head(data: memoryview, partition: PartitionAt, version: int, ends: tuple[int, int], into: bytearray) -> None:
    """Write the fields before the records in v4 to v11, which have no compact lengths and no tagged fields."""
    index, error_code, _, _, log_start, aborted = _FIXED.unpack_from(data, partition.start)
    # Compact numbers are one more. Without records, or without transactions, a single byte shows whether they are null.
    length = partition.record_bytes or data[partition.records - 1] - 1
    if version >= FIRST_RACK and aborted <= 1:
        into += _V11_HEAD.pack(index, error_code, *ends, log_start, aborted - 1, _NO_REPLICA, length)
        return
    into += _V4_HEAD.pack(index, error_code, *ends)
    if version >= FIRST_LOG_START:
        into += INT64.pack(log_start)
    if aborted <= 1:
        into += INT32.pack(aborted - 1)
    else:
        transactions = read_partition(data, partition.start, FIRST_FLEXIBLE)[1] or ()
        into += INT32.pack(len(transactions))
        for transaction in transactions:
            into += _ABORTED.pack(*transaction)
    if version >= FIRST_RACK:
        into += INT32.pack(_NO_REPLICA)
    into += INT32.pack(length)


def lowered(walk: FetchWalk, version: int) -> list[Buffer]:
    """Return a whole response in a version before LOWERED_FROM, with session 0 and without error; records by reference.

    The walk's topics are called by their names already. No partition names a preferred replica.
    """
    if walk.version < LOWERED_FROM or version >= LOWERED_FROM:
        raise ProtocolError(f"a Fetch response of v{walk.version} can't become one of v{version}")
    data, buffers, flexible = walk.body, list[Buffer](), version >= FIRST_FLEXIBLE
    small = bytearray(response_head(version, walk.throttle_ms, 0))
    small += write_count(len(walk.topics), flexible)
    for topic, partitions in walk.topics:
        small += write_topic(topic, version)
        small += write_count(len(partitions), flexible)
        if flexible:
            # Partitions are the same from v12 on, as long as nothing is tagged.
            if partitions:
                buffers.append(bytes(small))
                buffers.append(data[partitions[0].start : partitions[-1].end])
                small.clear()
            small += NO_TAGS
            continue
        for partition in partitions:
            _lower_head(data, partition, version, (partition.high_watermark, partition.last_stable_offset), small)
            if partition.record_bytes:
                buffers.append(bytes(small))
                buffers.append(data[partition.records : partition.records + partition.record_bytes])
                small.clear()
    if flexible:
        small += NO_TAGS
    if small:
        buffers.append(bytes(small))
    return buffers


def response_head(version: int, throttle_ms: int, error_code: int) -> bytes:
    """Return the bytes before the number of topics, with session 0."""
    if version < FIRST_SESSION:
        return INT32.pack(throttle_ms)
    return struct.pack(">ihi", throttle_ms, error_code, 0)


def response_tail(walk: FetchWalk) -> memoryview | bytes:
    """Return the bytes after the topics."""
    return walk.body[walk.tail :] if walk.version >= FIRST_FLEXIBLE else b""


def has_no_tail(walk: FetchWalk) -> bool:
    """Return whether the topics are followed by nothing or, from v12 on, by an empty section of tagged fields."""
    tail = walk.body[walk.tail :]
    return tail == NO_TAGS if walk.version >= FIRST_FLEXIBLE else not tail
