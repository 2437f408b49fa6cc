"""Fetch responses (API key 1), v4 to v18: build and parse.

Behaviour: records are never copied: a response is a list of buffers, and a parsed one holds memoryviews. A response
that combines several answers is made of their pieces: see `fetch_walk`.

Version notes: v5 log start offset, v7 error code and session ID, v11 preferred read replica (KIP-392), v12 flexible,
v13 topic IDs for names, v16 node endpoints as a tagged field (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_RACK,
    FIRST_SESSION,
    FIRST_TOPIC_ID,
    HIGHEST_VERSION,
    LOWEST_VERSION,
    write_topic,
)
from proxy.wire.primitives import (
    INT32,
    NO_TAGS,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_length,
    read_string,
    skip_tags,
    write_count,
)

_SESSION_HEAD = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqq")
_PARTITION_WITH_LOG_START = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_SCAN = struct.Struct(">4xh24xB4xBBBB")
"""Fields of a partition: error code, compact number of aborted transactions, four bytes that begin with the length of
the records."""


class PartitionFetched(NamedTuple):
    """The answer for one partition; fields that a version does not have are not written."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Sequence[Buffer]
    """Whole record batches in a row, cut into buffers anyhow."""
    records_length: int
    """Bytes of all of them; -1 is null records."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer ID, first offset) of aborted transactions; None is null, as for read_uncommitted."""
    preferred_read_replica: int = -1


class TopicFetched(NamedTuple):
    """The answers for one topic, named as in the request."""

    topic: str | bytes
    partitions: list[PartitionFetched]


class FetchResponse(NamedTuple):
    """A parsed response."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[TopicFetched]


def _check_version(version: int) -> None:
    if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
        raise ProtocolError(f"Fetch v{version} is not parsed here")


def build_fetch_response(
    version: int, session_id: int, topics: Sequence[TopicFetched], throttle_ms: int = 0, error_code: int = 0
) -> list[Buffer]:
    """Return the body of a response of the proxy's own; records are passed by reference."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    small = bytearray(INT32.pack(throttle_ms))
    if version >= FIRST_SESSION:
        small = bytearray(_SESSION_HEAD.pack(throttle_ms, error_code, session_id))
    small += write_count(len(topics), flexible)
    buffers: list[Buffer] = []
    for topic in topics:
        _write_topic(topic, version, small, buffers)
    if flexible:
        small += NO_TAGS
    if small:
        buffers.append(bytes(small))
    return buffers


def _write_topic(fetched: TopicFetched, version: int, small: bytearray, buffers: list[Buffer]) -> None:
    """Encode into `small`, which goes to `buffers` wherever records come between."""
    flexible = version >= FIRST_FLEXIBLE
    small += write_topic(fetched.topic, version)
    small += write_count(len(fetched.partitions), flexible)
    for partition in fetched.partitions:
        write_partition(partition, version, small, buffers)
    if flexible:
        small += NO_TAGS


def write_partition(fetched: PartitionFetched, version: int, small: bytearray, buffers: list[Buffer]) -> None:
    """Encode one partition's answer into `small`, which goes to `buffers` wherever records come between."""
    flexible = version >= FIRST_FLEXIBLE
    index, error_code, high_watermark, last_stable, log_start, records, length, aborted, preferred = fetched
    if version >= 5:
        small += _PARTITION_WITH_LOG_START.pack(index, error_code, high_watermark, last_stable, log_start)
    else:
        small += _PARTITION.pack(index, error_code, high_watermark, last_stable)
    small += write_count(-1 if aborted is None else len(aborted), flexible)
    for transaction in aborted or ():
        small += _ABORTED.pack(*transaction)
        if flexible:
            small += NO_TAGS
    if version >= FIRST_RACK:
        small += INT32.pack(preferred)
    small += write_count(length, flexible)
    if length > 0:
        buffers.append(bytes(small))
        buffers += records
        small.clear()
    if flexible:
        small += NO_TAGS


@parsing
def parse_fetch_response(body: Buffer, version: int) -> FetchResponse:
    """Parse the body of a response; tagged fields are skipped. Raises ProtocolError."""
    data = memoryview(body)
    flexible = version >= FIRST_FLEXIBLE
    error_code, session_id, count, at = read_head(data, version)
    topics = []
    for _ in range(count):
        topic, partition_count, at = read_topic(data, at, version)
        partitions = []
        for _ in range(partition_count):
            fields, aborted, preferred, start, end, at = read_partition(data, at, version)
            records = (data[start:end],) if end > start else ()
            partitions.append(PartitionFetched(*fields, records, end - start, aborted, preferred))
        if flexible:
            at = skip_tags(data, at)
        topics.append(TopicFetched(topic, partitions))
    if flexible:
        at = skip_tags(data, at)
    check_end(data, at)
    return FetchResponse(INT32.unpack_from(data)[0], error_code, session_id, topics)


@parsing
def parse_partition(piece: Buffer, version: int) -> PartitionFetched:
    """Parse the answer for one partition; tagged fields are skipped. Raises ProtocolError."""
    data = memoryview(piece)
    fields, aborted, preferred, start, end, at = read_partition(data, 0, version)
    check_end(data, at)
    return PartitionFetched(*fields, (data[start:end],) if end > start else (), end - start, aborted, preferred)


def read_head(data: memoryview, version: int) -> tuple[int, int, int, int]:
    """Error code, session ID, number of topics, position."""
    _check_version(version)
    at, error_code, session_id = 4, 0, 0
    if version >= FIRST_SESSION:
        _, error_code, session_id = _SESSION_HEAD.unpack_from(data)
        at = _SESSION_HEAD.size
    count, at = read_count(data, at, version >= FIRST_FLEXIBLE)
    return error_code, session_id, max(count, 0), at


def read_topic(data: memoryview, at: int, version: int) -> tuple[str | bytes, int, int]:
    """Topic, number of partitions, position."""
    topic: str | bytes
    if version >= FIRST_TOPIC_ID:
        check_end(data, at + 16)
        topic = bytes(data[at : at + 16])
        at += 16
    else:
        topic, at = read_string(data, at, version >= FIRST_FLEXIBLE)
    count, at = read_count(data, at, version >= FIRST_FLEXIBLE)
    return topic, max(count, 0), at


def read_partition(
    data: memoryview, at: int, version: int
) -> tuple[tuple[int, int, int, int, int], list[tuple[int, int]] | None, int, int, int, int]:
    """Return the fixed fields, aborted transactions, preferred replica, start and end of the records, position.

    Null records end one before they start.
    """
    flexible = version >= FIRST_FLEXIBLE
    fields: tuple[int, int, int, int, int]
    if flexible:
        start, length = locate_records(data, at)
        end = start + max(length, 0)
        if start:
            fields = _PARTITION_WITH_LOG_START.unpack_from(data, at)
            (preferred,) = INT32.unpack_from(data, at + 31)
            if end > len(data):
                raise ProtocolError("records lead beyond the end of the message")
            return fields, [] if data[at + 30] else None, preferred, start, start + length, skip_tags(data, end)
    if version >= 5:
        fields = _PARTITION_WITH_LOG_START.unpack_from(data, at)
        at += _PARTITION_WITH_LOG_START.size
    else:
        index, error_code, high_watermark, last_stable_offset = _PARTITION.unpack_from(data, at)
        fields = index, error_code, high_watermark, last_stable_offset, -1
        at += _PARTITION.size
    count, at = read_count(data, at, flexible)
    aborted: list[tuple[int, int]] | None = None if count < 0 else []
    for _ in range(count):
        transaction = _ABORTED.unpack_from(data, at)
        at = skip_tags(data, at + 16) if flexible else at + 16
        if aborted is not None:
            aborted.append(transaction)
    preferred = -1
    if version >= FIRST_RACK:
        (preferred,) = INT32.unpack_from(data, at)
        at += 4
    if flexible:
        length, start = read_length(data, at)
    else:
        (length,) = INT32.unpack_from(data, at)
        start = at + 4
        if length < -1:
            raise ProtocolError(f"records claim {length} bytes")
    at = start + max(length, 0)
    if at > len(data):
        raise ProtocolError("records lead beyond the end of the message")
    return fields, aborted, preferred, start, start + length, skip_tags(data, at) if flexible else at


def locate_records(data: Buffer, at: int) -> tuple[int, int]:
    """Return start and length of the records of a partition, v12 and later, that begins at `at`; length -1 is null.

    Start 0 means that the partition has aborted transactions or a length of five bytes, and must be read field by
    field.
    """
    _, aborted, first, second, third, fourth = _SCAN.unpack_from(data, at)
    if aborted > 1:
        return 0, 0
    if first < 0x80:
        return at + 36, first - 1
    if second < 0x80:
        return at + 37, first + (second << 7) - 0x81
    if third < 0x80:
        return at + 38, first + (second << 7) + (third << 14) - 0x4081
    if fourth < 0x80:
        return at + 39, first + (second << 7) + (third << 14) + (fourth << 21) - 0x204081
    return 0, 0
