"""DescribeTopicPartitions (API key 75), v0 and KIP-1163's v1: leaders as in Metadata; limits and cursor are not ours.

Version notes: v1 is proposed (KIP-1163): RackId as the last field of the request; the response is that of v0. Brokers
are asked v0 for it.
"""

from __future__ import annotations

from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import IsDiskless
from proxy.wire.partition_leaders import Leaders, PartitionLayout, PartitionWalker
from proxy.wire.primitives import (
    INT16,
    MAX_WHOLE_ELEMENTS,
    Buffer,
    check_elements,
    check_end,
    parsing,
    read_count,
    read_nullable_string,
    skip_string,
    skip_tags,
)
from proxy.wire.steps import Pace, Pausing, Steps

FIRST_RACK_ID = 1
_LAYOUT = PartitionLayout(flexible=True, leader_epoch=True, node_arrays=5)
"""Replicas, ISR, eligible leader replicas, last known eligible leader replicas (KIP-966), offline replicas."""
_NULL = 0xFF
"""Null of a nullable structure (int8 -1)."""


@parsing
def build_lower_request(body: Buffer) -> tuple[bytes, str | None]:
    """Return the body of a v1 request as v0, and the client's rack. Raises ProtocolError."""
    data = memoryview(body)
    topics, at = read_count(data, 0, True)
    check_elements(topics, MAX_WHOLE_ELEMENTS)
    for _ in range(topics):
        at = skip_tags(data, skip_string(data, at, True))
    at += 4
    if data[at] == _NULL:
        at += 1
    else:
        at = skip_tags(data, skip_string(data, at + 1, True) + 4)
    check_end(data, at)
    rack, end = read_nullable_string(data, at, True)
    check_end(data, skip_tags(data, end))
    return b"".join((data[:at], data[end:])), rack or None


@Pausing
def rewrite_response(body: Buffer, version: int, is_diskless: IsDiskless, leaders: Leaders) -> Steps[list[Buffer]]:
    """Return the body as clients get it: partitions of diskless topics as `rewrite_metadata_response` makes them.

    Raises ProtocolError.
    """
    if not 0 <= version <= FIRST_RACK_ID:
        raise ProtocolError(f"DescribeTopicPartitions v{version} is not parsed here")
    data = memoryview(body)
    walker = PartitionWalker(_LAYOUT, leaders)
    copied, out, pace = 0, bytearray(), Pace()
    count, at = read_count(data, 4, True)
    for _ in range(count):
        (error_code,) = INT16.unpack_from(data, at)
        name, at = read_nullable_string(data, at + 2, True)
        topic_id = bytes(data[at : at + 16])
        partitions, at = read_count(data, at + 17, True)
        partitions = max(partitions, 0)
        if not error_code and is_diskless(name, topic_id):
            out += data[copied:at]
            at = copied = yield from walker.written(data, at, partitions, out, name, pace, led=True)
        else:
            at = yield from walker.skipped(data, at, partitions, pace)
        at = skip_tags(data, at + 4)
    check_end(data, at)
    return [bytes(out), data[copied:]]
