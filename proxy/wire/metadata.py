"""Metadata (API key 3), v0 to v13 and KIP-1163's v14: parse and build requests, rewrite and read responses.

Behaviour: a response is walked and patched; what needs no change, and tagged fields that nobody here knows, stay as
they came. With no diskless topics only the list of brokers is rebuilt, and the rest is one slice.

Version notes: v1 rack, null for all topics, controller ID; v2 cluster ID; v3 throttle time; v4 auto-creation flag;
v5 offline replicas; v7 leader epoch; v8 authorized operations (KIP-430; of the cluster only up to v10); v9 flexible;
v10 topic IDs; v12 lookup by topic ID with null names (KIP-516); v13 a top-level error. v14 is proposed (KIP-1163): a
RackId in the request; in the response IsDiskless of each topic and PreferredProduceBrokers of each partition, which
are written here as the last fields of theirs. Brokers are asked v13 for it, so what is read here is v13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.wire.errors import ProtocolError
from proxy.wire.metadata_reuse import RewrittenTopics
from proxy.wire.partition_leaders import AS_ONE, MOST_AT_ONCE, Leaders, PartitionLayout, PartitionWalker
from proxy.wire.primitives import (
    INT16,
    INT32,
    MAX_DECODED_ELEMENTS,
    MAX_WHOLE_ELEMENTS,
    NO_TAGS,
    ZERO_UUID,
    Buffer,
    check_elements,
    check_end,
    parsing,
    read_count,
    read_nullable_string,
    read_string,
    skip_string,
    skip_tags,
    write_count,
    write_string,
)
from proxy.wire.steps import AT_A_TIME, Pace, Pausing, Steps

LOWEST_VERSION = 0
HIGHEST_VERSION = 14
FIRST_FLEXIBLE = 9
FIRST_TOPIC_ID = 10
FIRST_RACK_ID = 14

AddressOf = Callable[[int], "tuple[str, int] | None"]
"""Host and port that clients get for a node ID; None if it is not to be named."""
IsDiskless = Callable[["str | None", "bytes | None"], bool]
"""From a topic's name (null on failed lookups by ID) and its ID (None before v10)."""


class MetadataRequestTopic(NamedTuple):
    """A topic that is asked for: by name, or from v12 on by its ID."""

    name: str | None
    topic_id: bytes = ZERO_UUID
    tagged: Buffer = NO_TAGS


class MetadataRequest(NamedTuple):
    """A Metadata request."""

    version: int
    topics: list[MetadataRequestTopic] | None
    """None is all topics."""
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False
    rack_id: str | None = None
    """Rack of the client, from v14 on; empty or null if it has none."""
    tagged: Buffer = NO_TAGS


class Broker(NamedTuple):
    """A broker as a response names it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataTopic(NamedTuple):
    """A topic as a response names it."""

    error_code: int
    name: str | None
    topic_id: bytes | None
    """None before v10."""
    partition_count: int
    authorized_operations: int
    """A bit per AclOperation; -2147483648 if it was not requested."""


def _check_version(version: int) -> None:
    if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
        raise ProtocolError(f"Metadata v{version} is not parsed here")


@Pausing
def parse_metadata_request(body: Buffer, version: int) -> Steps[MetadataRequest]:
    """Parse the body of a request. Raises ProtocolError."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data = memoryview(body)
    count, at = read_count(data, 0, flexible)
    check_elements(count, MAX_DECODED_ELEMENTS if version < FIRST_RACK_ID else MAX_WHOLE_ELEMENTS)
    topics: list[MetadataRequestTopic] | None = []
    pace = Pace()
    for _ in range(count):
        if pace.pauses(1):
            yield
        topic_id, tagged = ZERO_UUID, NO_TAGS
        if version >= FIRST_TOPIC_ID:
            check_end(data, at + 16)
            topic_id = bytes(data[at : at + 16])
            at += 16
        name, at = read_nullable_string(data, at, flexible)
        if flexible:
            start, at = at, skip_tags(data, at)
            tagged = bytes(data[start:at])
        if topics is not None:
            topics.append(MetadataRequestTopic(name, topic_id, tagged))
    if count < 0 or (version == 0 and not count):
        topics = None
    auto_create, cluster_operations, topic_operations, rack_id, tagged = True, False, False, None, NO_TAGS
    if version >= 4:
        auto_create, at = data[at] != 0, at + 1
    if 8 <= version <= 10:
        cluster_operations, at = data[at] != 0, at + 1
    if version >= 8:
        topic_operations, at = data[at] != 0, at + 1
    if version >= FIRST_RACK_ID:
        rack_id, at = read_nullable_string(data, at, flexible)
    if flexible:
        start, at = at, skip_tags(data, at)
        tagged = bytes(data[start:at])
    check_end(data, at)
    return MetadataRequest(version, topics, auto_create, cluster_operations, topic_operations, rack_id, tagged)


def build_metadata_request(
    version: int,
    names: Sequence[str] | None,
    *,
    allow_auto_topic_creation: bool = False,
    topic_authorized_operations: bool = False,
) -> bytes:
    """Return the body of a request of the proxy's own for topics by name; None is all topics."""
    topics = None if names is None else [MetadataRequestTopic(name) for name in names]
    return encode_metadata_request(
        MetadataRequest(version, topics, allow_auto_topic_creation, False, topic_authorized_operations)
    )


@Pausing
def encode_metadata_request(request: MetadataRequest) -> Steps[bytes]:
    """Return the body of a request; of a parsed one, the same bytes."""
    version, topics = request.version, request.topics
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    if topics is None:
        out = bytearray(write_count(0 if version == 0 else -1, flexible))
    else:
        out = bytearray(write_count(len(topics), flexible))
    pace = Pace()
    for topic in topics or ():
        if pace.pauses(1):
            yield
        if version >= FIRST_TOPIC_ID:
            out += topic.topic_id
        out += write_string(topic.name, flexible)
        if flexible:
            out += topic.tagged
    if version >= 4:
        out.append(request.allow_auto_topic_creation)
    if 8 <= version <= 10:
        out.append(request.include_cluster_authorized_operations)
    if version >= 8:
        out.append(request.include_topic_authorized_operations)
    if version >= FIRST_RACK_ID:
        out += write_string(request.rack_id, flexible)
    if flexible:
        out += request.tagged
    return bytes(out)


def build_lower_metadata_request(body: Buffer, version: int) -> tuple[bytes, str | None]:
    """Return the body of a request with RackId in the version below, and the rack. Raises ProtocolError."""
    request = parse_metadata_request(body, version)
    return encode_metadata_request(request._replace(version=FIRST_RACK_ID - 1)), request.rack_id or None


@Pausing
def rewrite_metadata_response(
    body: Buffer,
    version: int,
    *,
    address_of: AddressOf,
    is_diskless: IsDiskless | None,
    leaders: Leaders | None,
    lifelines: Sequence[Broker] = (),
    reuse: RewrittenTopics | None = None,
) -> Steps[list[Buffer]]:
    """Return the body as clients get it; that of v14 from one of v13. Raises ProtocolError.

    Every broker's host and port are replaced; one whose `address_of` is None is left out, and `lifelines` are added.
    The partitions of diskless topics get `leaders`; their epochs stay. Topics with an error of their own are left
    alone, and with `leaders` or `is_diskless` None all are. `reuse` has topics that were rewritten before.
    """
    _check_version(version)
    data = memoryview(body)
    start = 4 if version >= 3 else 0
    brokers, at = _rewrite_brokers(data, start, version, address_of, lifelines)
    if version < FIRST_RACK_ID and (is_diskless is None or leaders is None):
        check_end(data, at)
        return [data[:start], brokers, data[at:]]
    walk = _rewrite_topics(data, at, version, is_diskless or (lambda name, topic_id: False), leaders)
    topics = yield from walk if reuse is None else reuse.rewritten(data[at:], version, leaders, walk)
    return [data[:start], brokers, *topics]


@parsing
def metadata_brokers(body: Buffer, version: int) -> list[Broker]:
    """Return the brokers of a response; v0 has no racks. Raises ProtocolError."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data = memoryview(body)
    count, at = read_count(data, 4 if version >= 3 else 0, flexible)
    brokers = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, at)
        host, at = read_string(data, at + 4, flexible)
        (port,) = INT32.unpack_from(data, at)
        rack, at = read_nullable_string(data, at + 4, flexible) if version >= 1 else (None, at + 4)
        if flexible:
            at = skip_tags(data, at)
        brokers.append(Broker(node_id, host, port, rack))
    check_end(data, at)
    return brokers


@parsing
def metadata_cluster_id(body: Buffer, version: int) -> str | None:
    """Return the Kafka cluster's ID in a response, from v2 on. Raises ProtocolError."""
    _check_version(version)
    data = memoryview(body)
    at = _skip_brokers(data, 4 if version >= 3 else 0, version)
    cluster_id, at = read_nullable_string(data, at, version >= FIRST_FLEXIBLE)
    check_end(data, at)
    return cluster_id


@Pausing
def metadata_topics(body: Buffer, version: int) -> Steps[list[MetadataTopic]]:
    """Return the topics of a response. Raises ProtocolError."""
    _check_version(version)
    flexible = version >= FIRST_FLEXIBLE
    data = memoryview(body)
    walker = PartitionWalker(_layout(version))
    at = _skip_to_topics(data, _skip_brokers(data, 4 if version >= 3 else 0, version), version)
    count, at = read_count(data, at, flexible)
    topics, pace = [], Pace()
    for _ in range(count):
        error_code, name, topic_id, partitions, at = _read_topic(data, at, version)
        at = yield from walker.skipped(data, at, partitions, pace)
        operations = -0x80000000
        if version >= 8:
            (operations,) = INT32.unpack_from(data, at)
            at += 4
        if flexible:
            at = skip_tags(data, at)
        topics.append(MetadataTopic(error_code, name, topic_id, partitions, operations))
    check_end(data, at)
    return topics


@Pausing
def with_topic_errors(body: Buffer, version: int, errors: Mapping[str, int]) -> Steps[bytes]:
    """Return the body of a response with these errors of topics, by name, in place of theirs. Raises ProtocolError."""
    _check_version(version)
    data, out = memoryview(body), bytearray(body)
    walker = PartitionWalker(_layout(version))
    at = _skip_to_topics(data, _skip_brokers(data, 4 if version >= 3 else 0, version), version)
    count, at = read_count(data, at, version >= FIRST_FLEXIBLE)
    pace = Pace()
    for _ in range(count):
        start = at
        _, name, _, partitions, at = _read_topic(data, at, version)
        if name is not None and name in errors:
            INT16.pack_into(out, start, errors[name])
        at = yield from walker.skipped(data, at, partitions, pace)
        if version >= 8:
            at += 4
        if version >= FIRST_FLEXIBLE:
            at = skip_tags(data, at)
    check_end(data, at)
    return bytes(out)


def _layout(version: int) -> PartitionLayout:
    arrays = 3 if version >= 5 else 2
    return PartitionLayout(version >= FIRST_FLEXIBLE, version >= 7, arrays, add_preferred=version >= FIRST_RACK_ID)


def _rewrite_brokers(
    data: memoryview, at: int, version: int, address_of: AddressOf, lifelines: Sequence[Broker] = ()
) -> tuple[bytes, int]:
    flexible = version >= FIRST_FLEXIBLE
    count, at = read_count(data, at, flexible)
    out, kept = bytearray(), 0
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, at)
        start = skip_string(data, at + 4, flexible) + 4
        at = skip_string(data, start, flexible) if version >= 1 else start
        if flexible:
            at = skip_tags(data, at)
        check_end(data, at)
        address = address_of(node_id)
        if address is not None:
            kept += 1
            out += INT32.pack(node_id) + write_string(address[0], flexible) + INT32.pack(address[1])
            out += data[start:at]
    for lifeline in lifelines:
        kept, count = kept + 1, max(count, 0)
        out += INT32.pack(lifeline.node_id) + write_string(lifeline.host, flexible) + INT32.pack(lifeline.port)
        out += write_string(lifeline.rack, flexible) if version >= 1 else b""
        out += NO_TAGS if flexible else b""
    return write_count(kept if count >= 0 else count, flexible) + out, at


def _skip_brokers(data: memoryview, at: int, version: int) -> int:
    return _rewrite_brokers(data, at, version, lambda node_id: None)[1]


def _skip_to_topics(data: memoryview, at: int, version: int) -> int:
    """Over cluster ID and controller ID."""
    if version >= 2:
        at = skip_string(data, at, version >= FIRST_FLEXIBLE)
    return at + 4 if version >= 1 else at


def _read_topic(data: memoryview, at: int, version: int) -> tuple[int, str | None, bytes | None, int, int]:
    """Error code, name, ID, number of partitions, position of the first."""
    flexible = version >= FIRST_FLEXIBLE
    (error_code,) = INT16.unpack_from(data, at)
    name, at = read_nullable_string(data, at + 2, flexible)
    topic_id = None
    if version >= FIRST_TOPIC_ID:
        topic_id = bytes(data[at : at + 16])
        at += 16
    if version >= 1:
        at += 1
    partitions, at = read_count(data, at, flexible)
    return error_code, name, topic_id, max(partitions, 0), at


def _rewrite_topics(
    data: memoryview, at: int, version: int, is_diskless: IsDiskless, leaders: Leaders | None
) -> Steps[list[Buffer]]:
    """Return everything after the brokers."""
    flexible, walker = version >= FIRST_FLEXIBLE, PartitionWalker(_layout(version), leaders)
    proposed = version >= FIRST_RACK_ID
    copied, out, done = at, bytearray(), 0
    count, at = read_count(data, _skip_to_topics(data, at, version), flexible)
    for _ in range(count):
        error_code, name, topic_id, partitions, at = _read_topic(data, at, version)
        diskless = not error_code and is_diskless(name, topic_id)
        led = diskless and leaders is not None
        # A call is cheaper than a generator, a number than a Pace, and nearly all topics are small enough for them.
        small = partitions <= MOST_AT_ONCE
        done += 1 + partitions // AS_ONE if small else AT_A_TIME
        if done >= AT_A_TIME:
            done = 0
            yield
        if led or proposed:
            out += data[copied:at]
            if small:
                at = copied = walker.write(data, at, partitions, out, name, led=led)
            else:
                at = copied = yield from walker.written(data, at, partitions, out, name, Pace(), led=led)
        elif small:
            at = walker.skip(data, at, partitions)
        else:
            at = yield from walker.skipped(data, at, partitions, Pace())
        if version >= 8:
            at += 4
        if proposed:
            check_end(data, at)
            out += data[copied:at]
            out.append(diskless)
            copied = at
        if flexible:
            at = skip_tags(data, at)
    check_end(data, at)
    return [bytes(out), data[copied:]] if out else [data[copied:]]
