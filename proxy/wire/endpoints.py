"""Addresses in all other responses that name brokers, so that no broker's own endpoint leaks.

FindCoordinator, DescribeCluster, DescribeQuorum, and the node endpoints (KIP-951) of Produce, Fetch, ShareFetch and
ShareAcknowledge. Tagged fields that nobody here knows stay as they came. All functions take the body of
a response and raise ProtocolError.
"""

from __future__ import annotations

from proxy.protocol.api_keys import PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from proxy.wire import produce
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import AddressOf
from proxy.wire.primitives import (
    INT16,
    INT32,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_length,
    read_nullable_string,
    read_tags,
    skip_string,
    skip_tags,
    write_count,
    write_string,
    write_tags,
)
from proxy.wire.steps import Pace, Pausing, Steps

_NODE_ENDPOINTS_TAG = 0
_COORDINATOR_NOT_AVAILABLE = 15
_NO_NODE = INT32.pack(-1)
_QUORUM_PARTITION_BYTES = 16
"""Leader ID, leader epoch, high watermark."""
_QUORUM_REPLICA_BYTES = 44
"""Replica ID, directory ID, log end offset, two timestamps."""


@Pausing
def rewrite_find_coordinator(body: Buffer, version: int, address_of: AddressOf) -> Steps[list[Buffer]]:
    """FindCoordinator v0 to v6: one coordinator up to v3, an array from v4 on.

    An answer without a coordinator (empty host) is kept. A coordinator whose `address_of` is None becomes
    COORDINATOR_NOT_AVAILABLE, after which clients ask again.
    """
    if not 0 <= version <= 6:
        raise ProtocolError(f"FindCoordinator v{version} is not parsed here")
    flexible = version >= 3
    data = memoryview(body)
    if version < 4:
        error_at = 4 if version >= 1 else 0
        at = error_at + 2
        if version >= 1:
            at = skip_string(data, at, flexible)
        node, end = _rewrite_coordinator(data, at, flexible, address_of)
        if node is None:
            return [data]
        if node == b"":
            head = (
                data[:error_at].tobytes() + INT16.pack(_COORDINATOR_NOT_AVAILABLE) + data[error_at + 2 : at].tobytes()
            )
            return [head, _no_coordinator(flexible), data[end:]]
        return [data[:at], node, data[end:]]
    out, copied, pace = bytearray(), 0, Pace()
    count, at = read_count(data, 4, flexible)
    for _ in range(count):
        if pace.pauses(1):
            yield
        at = skip_string(data, at, flexible)
        node, end = _rewrite_coordinator(data, at, flexible, address_of)
        if node is not None:
            out += data[copied:at]
            out += node or _no_coordinator(flexible) + INT16.pack(_COORDINATOR_NOT_AVAILABLE)
            copied = end if node else end + 2
        at = skip_tags(data, skip_string(data, end + 2, flexible))
    check_end(data, at)
    return [bytes(out), data[copied:]]


def _rewrite_coordinator(data: memoryview, at: int, flexible: bool, address_of: AddressOf) -> tuple[bytes | None, int]:
    """Return node ID, host and port rewritten, and the position after them. None keeps them; empty means no address."""
    (node_id,) = INT32.unpack_from(data, at)
    host, end = read_nullable_string(data, at + 4, flexible)
    check_end(data, end + 4)
    if not host:
        return None, end + 4
    address = address_of(node_id) if node_id >= 0 else None
    if address is None:
        return b"", end + 4
    return INT32.pack(node_id) + write_string(address[0], flexible) + INT32.pack(address[1]), end + 4


def _no_coordinator(flexible: bool) -> bytes:
    return _NO_NODE + write_string("", flexible) + _NO_NODE


@parsing
def rewrite_describe_cluster(body: Buffer, version: int, address_of: AddressOf) -> list[Buffer]:
    """DescribeCluster v0 to v2: brokers' addresses; one whose `address_of` is None is left out."""
    if not 0 <= version <= 2:
        raise ProtocolError(f"DescribeCluster v{version} is not parsed here")
    data = memoryview(body)
    at = skip_string(data, 6, True)
    if version >= 1:
        at += 1
    start = skip_string(data, at, True) + 4
    brokers, at = _rewrite_nodes(data, start, address_of, 1 if version >= 2 else 0)
    check_end(data, at)
    return [data[:start], brokers, data[at:]]


@Pausing
def hide_controller_listeners(body: Buffer, version: int) -> Steps[list[Buffer]]:
    """Leave the controllers' listeners out of DescribeQuorum v2, as no client connects to them; v0 and v1 have none.

    Leader, voters, their progress and the directory IDs (KIP-853) stay.
    """
    if not 0 <= version <= 2:
        raise ProtocolError(f"DescribeQuorum v{version} is not parsed here")
    data = memoryview(body)
    if version < 2:
        return [data]
    topics, at = read_count(data, skip_string(data, 2, True), True)
    pace = Pace()
    for _ in range(topics):
        partitions, at = read_count(data, skip_string(data, at, True), True)
        for _ in range(partitions):
            if pace.pauses(1):
                yield
            at = skip_string(data, at + 6, True) + _QUORUM_PARTITION_BYTES
            for _ in ("current voters", "observers"):
                replicas, at = read_count(data, at, True)
                for _ in range(replicas):
                    at = skip_tags(data, at + _QUORUM_REPLICA_BYTES)
            at = skip_tags(data, at)
        at = skip_tags(data, at)
    nodes, at = read_count(data, at, True)
    check_end(data, at)
    out, copied = bytearray(), 0
    for _ in range(nodes):
        out += data[copied : at + 4]
        listeners, at = read_count(data, at + 4, True)
        for _ in range(listeners):
            at = skip_tags(data, skip_string(data, skip_string(data, at, True), True) + 2)
        check_end(data, at)
        out += write_count(0, True)
        copied, at = at, skip_tags(data, at)
    check_end(data, at)
    return [bytes(out), data[copied:]]


@parsing
def rewrite_node_endpoints(api_key: int, body: Buffer, version: int, address_of: AddressOf) -> list[Buffer]:
    """Return the node endpoints of Produce v10+, ShareFetch and ShareAcknowledge; older versions have none.

    The endpoints of Fetch are rewritten as they stream through, or by `rewrite_endpoint_section` after a walk. A node
    whose `address_of` is None is left out: the client then asks for metadata.
    """
    if api_key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
        return rewrite_share_endpoints(api_key, body, version, address_of)
    data = memoryview(body)
    if api_key == PRODUCE:
        if version < 10:
            return [data]
        start = produce.skip_topic_responses(data, version) + 4
    else:
        raise ProtocolError(f"responses of API key {api_key} carry no node endpoints")
    if start < len(data) and not data[start]:
        return [data]
    fields, at = read_tags(data, start)
    check_end(data, at)
    return [data[:start], write_tags(rewrite_endpoint_fields(data, fields, address_of)), data[at:]]


@Pausing
def rewrite_share_endpoints(api_key: int, body: Buffer, version: int, address_of: AddressOf) -> Steps[list[Buffer]]:
    """Do `rewrite_node_endpoints` for ShareFetch and ShareAcknowledge."""
    data = memoryview(body)
    start = yield from _skip_share_topics(data, api_key, version)
    nodes, at = _rewrite_nodes(data, start, address_of)
    check_end(data, at)
    return [data[:start], nodes, data[at:]]


@parsing
def rewrite_endpoint_section(section: Buffer, address_of: AddressOf) -> bytes:
    """Do the same as `rewrite_endpoint_fields` for the whole section of a response's tagged fields."""
    data = memoryview(section)
    fields, at = read_tags(data, 0)
    check_end(data, at)
    return write_tags(rewrite_endpoint_fields(data, fields, address_of))


@parsing
def rewrite_endpoint_fields(
    data: memoryview, fields: list[tuple[int, int, int]], address_of: AddressOf
) -> list[tuple[int, Buffer]]:
    """Top-level tagged fields, from `read_tags`, with the node endpoints in tag 0 rewritten."""
    rewritten: list[tuple[int, Buffer]] = []
    for tag, start, end in fields:
        value: Buffer = data[start:end]
        if tag == _NODE_ENDPOINTS_TAG:
            value, at = _rewrite_nodes(data[:end], start, address_of)
            if at != end:
                raise ProtocolError("the node endpoints do not fill their tagged field")
        rewritten.append((tag, value))
    return rewritten


def _rewrite_nodes(data: memoryview, at: int, address_of: AddressOf, extra: int = 0) -> tuple[bytes, int]:
    """Return an array of node ID, host, port, rack, `extra` bytes and tagged fields, and the position after it."""
    count, at = read_length(data, at)
    out, kept = bytearray(), 0
    for _ in range(count):
        (node_id,) = INT32.unpack_from(data, at)
        start = skip_string(data, at + 4, True) + 4
        at = skip_tags(data, skip_string(data, start, True) + extra)
        check_end(data, at)
        address = address_of(node_id)
        if address is not None:
            kept += 1
            out += INT32.pack(node_id) + write_string(address[0], True) + INT32.pack(address[1])
            out += data[start:at]
    return write_count(kept if count >= 0 else count, True) + out, at


def _skip_share_topics(data: memoryview, api_key: int, version: int) -> Steps[int]:
    """Return where the node endpoints of ShareFetch and ShareAcknowledge begin, v1 and v2."""
    if version not in (1, 2):
        raise ProtocolError(f"API key {api_key} v{version} is not parsed here")
    fetching = api_key == SHARE_FETCH
    at = skip_string(data, 6, True)
    if fetching or version >= 2:
        at += 4
    topics, at = read_count(data, at, True)
    pace = Pace()
    for _ in range(topics):
        partitions, at = read_count(data, at + 16, True)
        for _ in range(partitions):
            if pace.pauses(2):
                yield
            at = skip_string(data, at + 6, True)
            if fetching:
                at = skip_string(data, at + 2, True)
            at = skip_tags(data, at + 8)
            if fetching:
                length, at = read_length(data, at)
                at += max(length, 0)
                acquired, at = read_count(data, at, True)
                for _ in range(acquired):
                    if pace.pauses(1):
                        yield
                    at = skip_tags(data, at + 18)
            at = skip_tags(data, at)
        at = skip_tags(data, at)
    check_end(data, at)
    return at
