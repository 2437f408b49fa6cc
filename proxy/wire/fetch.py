"""Fetch requests (API key 1), v4 to v18: parse and build. Responses are in `fetch_response.py`.

Behaviour: a request that is parsed and built again is the same bytes, with tagged fields that nobody here knows. Built
for another version, fields that it lacks are left out and fields that it adds have Kafka's defaults.

Version notes: v5 log start offset, v7 sessions (KIP-227), v9 current leader epoch (KIP-320), v11 rack ID (KIP-392),
v12 flexible and last fetched epoch (KIP-595), v13 topic IDs for names (KIP-516), v15 replica ID moves into a tagged
field (KIP-903), v17 directory ID (KIP-853) and v18 high watermark (KIP-1166) as tagged fields that only replicas send.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import (
    INT32,
    MAX_DECODED_ELEMENTS,
    NO_TAGS,
    Buffer,
    check_elements,
    check_end,
    parsing,
    read_count,
    read_string,
    read_tags,
    skip_tags,
    write_count,
    write_string,
)
from proxy.wire.steps import AT_A_TIME, Pace, Steps, at_once, in_slices

LOWEST_VERSION = 4
HIGHEST_VERSION = 18
FIRST_SESSION = 7
FIRST_LEADER_EPOCH = 9
FIRST_RACK = 11
FIRST_FLEXIBLE = 12
FIRST_TOPIC_ID = 13
FIRST_REPLICA_TAG = 15

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
"""Brokers fail over any other one."""
CONSUMER_REPLICA_ID = -1
NO_SESSION = -1
"""The session epoch of a Fetch that neither has a session nor begins one (KIP-227)."""
NO_EPOCH = -1
_REPLICA_STATE_TAG = 1

_HEAD = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")


class PartitionFetch(NamedTuple):
    """Fields of one partition in a request; `tagged` is the raw section of tagged fields."""

    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    """-1 from consumers."""
    partition_max_bytes: int
    tagged: Buffer = NO_TAGS


class TopicFetch(NamedTuple):
    """Partitions of one topic in a request: by name, from v13 on by its 16-byte ID."""

    topic: str | bytes
    partitions: list[PartitionFetch]
    tagged: Buffer = NO_TAGS


class FetchRequest(NamedTuple):
    """A Fetch request."""

    version: int
    replica_id: int
    """CONSUMER_REPLICA_ID, or the broker that replicates. From v15 on it is in `tagged`, and built from there."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    """0 read_uncommitted, 1 read_committed."""
    session_id: int
    session_epoch: int
    """-1 without a session, 0 to begin one."""
    topics: list[TopicFetch]
    forgotten: list[tuple[str | bytes, list[int]]]
    """(topic, partition indexes) that leave the session."""
    rack_id: str
    tagged: Buffer = NO_TAGS


def _check_version(version: int) -> None:
    if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
        raise ProtocolError(f"Fetch v{version} is not parsed here")


def _partition_struct(version: int) -> struct.Struct:
    """Return the fields of a partition without tagged ones."""
    leader_epoch = "i" if version >= FIRST_LEADER_EPOCH else ""
    last_fetched_epoch = "i" if version >= FIRST_FLEXIBLE else ""
    log_start_offset = "q" if version >= 5 else ""
    return struct.Struct(f">i{leader_epoch}q{last_fetched_epoch}{log_start_offset}i")


_PARTITION = {version: _partition_struct(version) for version in range(LOWEST_VERSION, HIGHEST_VERSION + 1)}


def session_epoch_at(version: int) -> int | None:
    """Return the position of the session's epoch, an INT32, in a request's body; None if the version has none."""
    if version < FIRST_SESSION:
        return None
    return (4 if version < FIRST_REPLICA_TAG else 0) + _HEAD.size + INT32.size


@parsing
def parse_fetch_request(body: Buffer, version: int) -> FetchRequest:
    """Parse the body of a request. Raises ProtocolError."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data, at, replica_id = memoryview(body), 0, CONSUMER_REPLICA_ID
    if version < FIRST_REPLICA_TAG:
        (replica_id,) = INT32.unpack_from(data)
        at = 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    session_id, session_epoch = 0, NO_EPOCH
    if version >= FIRST_SESSION:
        session_id, session_epoch = _SESSION.unpack_from(data, at)
        at += _SESSION.size
    count, at = read_count(data, at, flexible)
    elements = count
    check_elements(elements, MAX_DECODED_ELEMENTS)
    topics = []
    for _ in range(count):
        topic, at = _read_topic(data, at, version)
        partition_count, at = read_count(data, at, flexible)
        elements += partition_count
        check_elements(elements, MAX_DECODED_ELEMENTS)
        partitions: list[PartitionFetch] = []
        at = _read_partitions(data, at, version, partition_count, partitions)
        tagged: Buffer = NO_TAGS
        if flexible:
            start, at = at, skip_tags(data, at)
            if at - start > 1:
                tagged = data[start:at]
        topics.append(TopicFetch(topic, partitions, tagged))
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= FIRST_SESSION:
        at = _read_forgotten(data, at, version, forgotten)
    rack_id = ""
    if version >= FIRST_RACK:
        rack_id, at = read_string(data, at, flexible)
    tagged = NO_TAGS
    if flexible:
        start = at
        fields, at = read_tags(data, at)
        if fields:
            tagged = data[start:at]
        if version >= FIRST_REPLICA_TAG:
            for tag, value, _ in fields:
                if tag == _REPLICA_STATE_TAG:
                    (replica_id,) = INT32.unpack_from(data, value)
    check_end(data, at)
    return FetchRequest(
        version,
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        tagged,
    )


def fetch_request_steps(body: Buffer, version: int) -> Steps[FetchRequest]:
    """Do `parse_fetch_request` with pauses. Raises ProtocolError."""
    try:
        return (yield from _request_steps(memoryview(body), version))
    except (IndexError, struct.error) as error:
        raise ProtocolError("the message ends too early") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("a string of the message is not UTF-8") from error


def _request_steps(data: memoryview, version: int) -> Steps[FetchRequest]:
    """Read the large arrays, then the message without them."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    head_end = (
        (4 if version < FIRST_REPLICA_TAG else 0) + _HEAD.size + (_SESSION.size if version >= FIRST_SESSION else 0)
    )
    count, at = read_count(data, head_end, flexible)
    elements = count
    check_elements(elements, MAX_DECODED_ELEMENTS)
    topics = []
    for _ in range(count):
        topic, at = _read_topic(data, at, version)
        partition_count, at = read_count(data, at, flexible)
        elements += partition_count
        check_elements(elements, MAX_DECODED_ELEMENTS)
        partitions: list[PartitionFetch] = []
        for done in range(0, partition_count, AT_A_TIME):
            at = _read_partitions(data, at, version, min(AT_A_TIME, partition_count - done), partitions)
            yield
        start, at = at, skip_tags(data, at) if flexible else at
        topics.append(TopicFetch(topic, partitions, data[start:at] if at - start > 1 else NO_TAGS))
        yield
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= FIRST_SESSION:
        count, at = read_count(data, at, flexible)
        check_elements(count, MAX_DECODED_ELEMENTS)
        for _ in range(count):
            elements += 1
            at, elements = _read_forgotten_topic(data, at, version, elements, forgotten)
            yield
    without = bytes(data[:head_end]) + write_count(0, flexible) * (2 if version >= FIRST_SESSION else 1)
    rest = parse_fetch_request(without + data[at:], version)
    return rest._replace(topics=topics, forgotten=forgotten)


def _read_topic(data: memoryview, at: int, version: int) -> tuple[str | bytes, int]:
    if version >= FIRST_TOPIC_ID:
        check_end(data, at + 16)
        return bytes(data[at : at + 16]), at + 16
    return read_string(data, at, version >= FIRST_FLEXIBLE)


def _read_partitions(data: memoryview, at: int, version: int, count: int, into: list[PartitionFetch]) -> int:
    unpack, size, append, make = _PARTITION[version].unpack_from, _PARTITION[version].size, into.append, tuple.__new__
    if version >= FIRST_FLEXIBLE:
        for _ in range(count):
            fields = unpack(data, at)
            at += size
            if data[at]:
                start, at = at, skip_tags(data, at)
                append(make(PartitionFetch, (*fields, data[start:at])))
            else:
                at += 1
                append(make(PartitionFetch, (*fields, NO_TAGS)))
        return at
    for _ in range(count):
        fields = unpack(data, at)
        at += size
        if version >= FIRST_LEADER_EPOCH:
            index, leader_epoch, offset, log_start_offset, max_bytes = fields
        elif version >= 5:
            index, offset, log_start_offset, max_bytes = fields
            leader_epoch = NO_EPOCH
        else:
            index, offset, max_bytes = fields
            leader_epoch, log_start_offset = NO_EPOCH, -1
        append(PartitionFetch(index, leader_epoch, offset, NO_EPOCH, log_start_offset, max_bytes))
    return at


def _read_forgotten(data: memoryview, at: int, version: int, into: list[tuple[str | bytes, list[int]]]) -> int:
    flexible = version >= FIRST_FLEXIBLE
    count, at = read_count(data, at, flexible)
    elements = count
    check_elements(elements, MAX_DECODED_ELEMENTS)
    for _ in range(count):
        at, elements = _read_forgotten_topic(data, at, version, elements, into)
    return at


def _read_forgotten_topic(
    data: memoryview, at: int, version: int, elements: int, into: list[tuple[str | bytes, list[int]]]
) -> tuple[int, int]:
    """Return the position after the topic, and the number of elements so far."""
    flexible = version >= FIRST_FLEXIBLE
    topic, at = _read_topic(data, at, version)
    partition_count, at = read_count(data, at, flexible)
    elements += partition_count
    check_elements(elements, MAX_DECODED_ELEMENTS)
    partition_count = max(partition_count, 0)
    check_end(data, at + 4 * partition_count)
    into.append((topic, list(struct.unpack_from(f">{partition_count}i", data, at))))
    at += 4 * partition_count
    return skip_tags(data, at) if flexible else at, elements


def build_fetch_request(request: FetchRequest) -> bytes:
    """Return the body of a request."""
    return at_once(build_fetch_request_in_steps(request))


def build_fetch_request_in_steps(request: FetchRequest) -> Steps[bytes]:
    """Do `build_fetch_request` with pauses."""
    version = request.version
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray()
    if version < FIRST_REPLICA_TAG:
        out += INT32.pack(request.replica_id)
    out += _HEAD.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= FIRST_SESSION:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    out += write_count(len(request.topics), flexible)
    pack, pace = _PARTITION[version].pack, Pace()
    for topic, partitions, tagged in request.topics:
        out += write_topic(topic, version)
        out += write_count(len(partitions), flexible)
        for some in in_slices(partitions):
            for partition in some:
                out += pack(*_fields_of(partition, version))
                if flexible:
                    out += partition.tagged
            if pace.pauses(len(some) + 1):
                yield
        if flexible:
            out += tagged
    if version >= FIRST_SESSION:
        out += write_count(len(request.forgotten), flexible)
        for topic, indexes in request.forgotten:
            out += write_topic(topic, version) + write_count(len(indexes), flexible)
            out += struct.pack(f">{len(indexes)}i", *indexes)
            if flexible:
                out += NO_TAGS
    if version >= FIRST_RACK:
        out += write_string(request.rack_id, flexible)
    if flexible:
        out += request.tagged
    return bytes(out)


def _fields_of(partition: PartitionFetch, version: int) -> tuple[int, ...]:
    index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes, _ = partition
    if version >= FIRST_FLEXIBLE:
        return index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes
    if version >= FIRST_LEADER_EPOCH:
        return index, leader_epoch, offset, log_start_offset, max_bytes
    if version >= 5:
        return index, offset, log_start_offset, max_bytes
    return index, offset, max_bytes


def write_topic(topic: str | bytes, version: int) -> bytes:
    """Return a topic's name, or its ID from v13 on. Raises ValueError if the version wants the other."""
    if isinstance(topic, str):
        if version >= FIRST_TOPIC_ID:
            raise ValueError(f"Fetch v{version} names topics by ID")
        return write_string(topic, version >= FIRST_FLEXIBLE)
    if version < FIRST_TOPIC_ID or len(topic) != 16:
        raise ValueError(f"Fetch v{version} can't carry the topic {topic.hex()}")
    return topic
