"""Produce (API key 0), v3 to v13: parse and build requests; parse, build and merge responses.

Behaviour: records are never copied; they are memoryviews of the request's body. A request that is parsed and built
again is the same bytes, with tagged fields that nobody here knows.

Version notes: v3 transactional ID, v5 log start offset in the response, v8 record errors (KIP-467), v9 flexible,
v10 current leader and node endpoints as tagged fields (KIP-951), v11 and v12 as v10 (KIP-890), v13 topic IDs for names
(KIP-516). v0 to v2 carry message sets of old formats: their requests are read, for the topics' names, and never built.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT32,
    INT64,
    MAX_PRODUCED_ELEMENTS,
    NO_TAGS,
    Buffer,
    check_elements,
    check_end,
    parsing,
    read_count,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
    skip_string,
    skip_tags,
    write_count,
    write_string,
)

LOWEST_VERSION = 3
HIGHEST_VERSION = 13
FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 13

_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION_PRODUCED = struct.Struct(">ihqq")
_INDEX_VARINT = struct.Struct(">iBBBB")
_INDEX_LENGTH = struct.Struct(">ii")


class PartitionProduce(NamedTuple):
    """Records for one partition; `tagged` is the raw section of tagged fields."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    records: memoryview | None
    tagged: Buffer = NO_TAGS


class TopicProduce(NamedTuple):
    """Records for one topic: by name, from v13 on by its 16-byte ID."""

    topic: str | bytes
    partitions: list[PartitionProduce]
    tagged: Buffer = NO_TAGS


class ProduceRequest(NamedTuple):
    """A Produce request."""

    version: int
    transactional_id: str | None
    acks: int
    """-1, 0 or 1, unchecked."""
    timeout_ms: int
    topics: list[TopicProduce]
    tagged: Buffer = NO_TAGS


class PartitionProduced(NamedTuple):
    """The answer for one partition; fields that a version does not have are not written."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """(batch index, message) of records that made the batch fail."""


class TopicProduced(NamedTuple):
    """The answers for one topic, named as in the request."""

    topic: str | bytes
    partitions: list[PartitionProduced]


def _check_version(version: int) -> None:
    if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
        raise ProtocolError(f"Produce v{version} is not parsed here")


@parsing
def parse_produce_request(body: Buffer, version: int, most: int = MAX_PRODUCED_ELEMENTS) -> ProduceRequest:
    """Parse the body of a request, also of v0 to v2. Raises ProtocolError, TooManyElements for more than `most`."""
    data, flexible = memoryview(body), version >= FIRST_FLEXIBLE
    transactional_id, acks, timeout_ms, count, at = read_produce_head(data, version)
    elements = count
    check_elements(elements, most)
    topics = []
    for _ in range(count):
        topic: str | bytes
        if version >= FIRST_TOPIC_ID:
            topic = bytes(data[at : at + 16])
            at += 16
        else:
            topic, at = read_string(data, at, flexible)
        partition_count, at = read_count(data, at, flexible)
        elements += partition_count
        check_elements(elements, most)
        partitions: list[PartitionProduce] = []
        tagged: Buffer = NO_TAGS
        if flexible:
            at = read_flexible_partitions(data, at, partition_count, partitions)
            start, at = at, skip_tags(data, at)
            if at - start > 1:
                tagged = data[start:at]
        else:
            at = read_partitions(data, at, partition_count, partitions)
        topics.append(TopicProduce(topic, partitions, tagged))
    tagged = read_produce_end(data, at, flexible)
    return ProduceRequest(version, transactional_id, acks, timeout_ms, topics, tagged)


def read_produce_head(data: memoryview, version: int) -> tuple[str | None, int, int, int, int]:
    """Return transactional ID, acks, timeout in ms, the number of topics, and the position of the first one."""
    if not 0 <= version < LOWEST_VERSION:
        _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    transactional_id, at = read_nullable_string(data, 0, flexible) if version >= LOWEST_VERSION else (None, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, at)
    count, at = read_count(data, at + 6, flexible)
    return transactional_id, acks, timeout_ms, count, at


def read_produce_end(data: memoryview, at: int, flexible: bool) -> Buffer:
    """Return the tagged fields of a request, after which it ends."""
    start = at
    if flexible:
        at = skip_tags(data, at)
    check_end(data, at)
    return data[start:at] if at - start > 1 else NO_TAGS


def read_flexible_partitions(data: memoryview, at: int, count: int, into: list[PartitionProduce]) -> int:
    """Read partitions in the hot loop: index, compact records, tagged fields.

    Varints are read in line from four bytes at once: even the smallest last partition has four bytes after its index,
    with the tagged fields of topic and request.
    """
    unpack, new, append, end = _INDEX_VARINT.unpack_from, tuple.__new__, into.append, len(data)
    for _ in range(count):
        index, first, second, third, fourth = unpack(data, at)
        if first < 0x80:
            start, length = at + 5, first
        elif second < 0x80:
            start, length = at + 6, first + (second << 7) - 0x80
        elif third < 0x80:
            start, length = at + 7, first + (second << 7) + (third << 14) - 0x4080
        elif fourth < 0x80:
            start, length = at + 8, first + (second << 7) + (third << 14) + (fourth << 21) - 0x204080
        else:
            length, start = read_unsigned_varint(data, at + 4)
        records = None
        at = start
        if length:
            at += length - 1
            if at >= end:
                raise ProtocolError("records lead beyond the end of the message")
            records = data[start:at]
        if data[at]:
            start, at = at, skip_tags(data, at)
            append(PartitionProduce(index, records, data[start:at]))
        else:
            at += 1
            append(new(PartitionProduce, (index, records, NO_TAGS)))
    return at


def read_partitions(data: memoryview, at: int, count: int, into: list[PartitionProduce]) -> int:
    """Read partitions of a version that is not flexible."""
    unpack, end = _INDEX_LENGTH.unpack_from, len(data)
    for _ in range(count):
        index, length = unpack(data, at)
        at += 8
        if length < 0:
            if length < -1:
                raise ProtocolError(f"records claim {length} bytes")
            into.append(PartitionProduce(index, None))
            continue
        start = at
        at += length
        if at > end:
            raise ProtocolError("records lead beyond the end of the message")
        into.append(PartitionProduce(index, data[start:at]))
    return at


def build_produce_request(request: ProduceRequest) -> list[Buffer]:
    """Return the body of a request, whose topics may have been filtered; records are passed by reference."""
    buffers: list[Buffer] = []
    flexible, small = request.version >= FIRST_FLEXIBLE, write_produce_head(request)
    for topic, partitions, tagged in request.topics:
        small += write_topic(topic, request.version)
        small += write_count(len(partitions), flexible)
        write_partitions(partitions, flexible, small, buffers)
        if flexible:
            small += tagged
    if flexible:
        small += request.tagged
    buffers.append(bytes(small))
    return buffers


def write_produce_head(request: ProduceRequest) -> bytearray:
    """Return what comes before the topics of a request."""
    _check_version(request.version)
    flexible = request.version >= FIRST_FLEXIBLE
    small = bytearray(write_string(request.transactional_id, flexible))
    small += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    return small + write_count(len(request.topics), flexible)


def write_partitions(
    partitions: Iterable[PartitionProduce], flexible: bool, small: bytearray, buffers: list[Buffer]
) -> None:
    """Write partitions of a request: `small` has what is not in the `buffers` yet."""
    for index, records, tagged in partitions:
        small += INT32.pack(index)
        small += write_count(-1 if records is None else len(records), flexible)
        if records:
            buffers += (bytes(small), records)
            small.clear()
        if flexible:
            small += tagged


def build_produce_response(version: int, topics: list[TopicProduced], throttle_ms: int = 0) -> bytes:
    """Return the body of a response of the proxy's own."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    head = write_count(len(topics), flexible) + _write_topics(version, topics) + INT32.pack(throttle_ms)
    return head + NO_TAGS if flexible else head


@parsing
def parse_produce_response(body: Buffer, version: int) -> list[TopicProduced]:
    """Parse the body of a response; tagged fields are skipped. Raises ProtocolError."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data = memoryview(body)
    count, at = read_count(data, 0, flexible)
    topics = []
    for _ in range(count):
        topic: str | bytes
        if version >= FIRST_TOPIC_ID:
            topic = bytes(data[at : at + 16])
            at += 16
        else:
            topic, at = read_string(data, at, flexible)
        partition_count, at = read_count(data, at, flexible)
        partitions = []
        for _ in range(partition_count):
            answer, at = _read_answer(data, at, version)
            partitions.append(answer)
        if flexible:
            at = skip_tags(data, at)
        topics.append(TopicProduced(topic, partitions))
    check_end(data, at + INT32.size)
    return topics


def _read_answer(data: memoryview, at: int, version: int) -> tuple[PartitionProduced, int]:
    flexible = version >= FIRST_FLEXIBLE
    fields = _PARTITION_PRODUCED.unpack_from(data, at)
    at += _PARTITION_PRODUCED.size
    log_start_offset, message, errors = -1, None, []
    if version >= 5:
        (log_start_offset,) = INT64.unpack_from(data, at)
        at += INT64.size
    if version >= 8:
        error_count, at = read_count(data, at, flexible)
        for _ in range(error_count):
            (batch_index,) = INT32.unpack_from(data, at)
            text, at = read_nullable_string(data, at + INT32.size, flexible)
            if flexible:
                at = skip_tags(data, at)
            errors.append((batch_index, text))
        message, at = read_nullable_string(data, at, flexible)
    if flexible:
        at = skip_tags(data, at)
    index, error_code, base_offset, time_ms = fields
    answer = PartitionProduced(index, error_code, base_offset, time_ms, log_start_offset, message, tuple(errors))
    return answer, at


@parsing
def merge_produce_response(
    body: Buffer, version: int, topics: list[TopicProduced], throttle_ms: int = 0
) -> list[Buffer]:
    """Add `topics` to those of a broker's response; the rest is kept, node endpoints as they are.

    The throttle time is the longer of the broker's and ours. Raises ProtocolError.
    """
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data = memoryview(body)
    count, start = read_count(data, 0, flexible)
    count, end = max(count, 0), skip_topic_responses(data, version)
    if end + 4 > len(data):
        raise ProtocolError("the message ends too early")
    own = _write_topics(version, topics) + INT32.pack(max(INT32.unpack_from(data, end)[0], throttle_ms))
    return [write_count(count + len(topics), flexible), data[start:end], own, data[end + 4 :]]


@parsing
def skip_topic_responses(data: Buffer, version: int) -> int:
    """Return the position after the topics of a response's body, where the throttle time begins.

    Raises ProtocolError.
    """
    flexible = version >= FIRST_FLEXIBLE
    fixed = 22 + (8 if version >= 5 else 0)
    topics, at = read_count(data, 0, flexible)
    for _ in range(topics):
        at = at + 16 if version >= FIRST_TOPIC_ID else skip_string(data, at, flexible)
        partitions, at = read_count(data, at, flexible)
        for _ in range(partitions):
            at += fixed
            if version >= 8:
                errors, at = read_count(data, at, flexible)
                for _ in range(errors):
                    at = skip_string(data, at + 4, flexible)
                    if flexible:
                        at = skip_tags(data, at)
                at = skip_string(data, at, flexible)
            if flexible:
                at = skip_tags(data, at)
        if flexible:
            at = skip_tags(data, at)
    check_end(data, at)
    return at


def write_topic(topic: str | bytes, version: int) -> bytes:
    """Return a topic's name or ID as a request or response has it."""
    if isinstance(topic, str):
        if version >= FIRST_TOPIC_ID:
            raise ValueError(f"Produce v{version} names topics by ID")
        return write_string(topic, version >= FIRST_FLEXIBLE)
    if version < FIRST_TOPIC_ID or len(topic) != 16:
        raise ValueError(f"Produce v{version} can't carry the topic {topic.hex()}")
    return topic


def _write_topics(version: int, topics: list[TopicProduced]) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray()
    for topic, partitions in topics:
        out += write_topic(topic, version)
        out += write_count(len(partitions), flexible)
        write_produced(partitions, version, out)
        if flexible:
            out += NO_TAGS
    return bytes(out)


def write_produced(partitions: Iterable[PartitionProduced], version: int, out: bytearray) -> None:
    """Write the answers for partitions."""
    flexible = version >= FIRST_FLEXIBLE
    for answer in partitions:
        out += _PARTITION_PRODUCED.pack(*answer[:4])
        if version >= 5:
            out += INT64.pack(answer.log_start_offset)
        if version >= 8:
            out += write_count(len(answer.record_errors), flexible)
            for batch_index, message in answer.record_errors:
                out += INT32.pack(batch_index) + write_string(message, flexible)
                if flexible:
                    out += NO_TAGS
            out += write_string(answer.error_message, flexible)
        if flexible:
            out += NO_TAGS
