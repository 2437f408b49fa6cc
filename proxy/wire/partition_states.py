"""Leaders, replicas and ISR of topics, from a Metadata response (API key 3) of v12, in two steps.

Most answers repeat the last one. So a response is first cut into topics, whose bytes can be compared with the last
ones. Only a topic that differs is read partition by partition.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire.partition_leaders import PartitionLayout, PartitionWalker
from proxy.wire.primitives import (
    INT16,
    Buffer,
    check_end,
    parsing,
    read_count,
    read_nullable_string,
    skip_string,
    skip_tags,
)

VERSION = 12
_THROTTLE_BYTES = 4
_CONTROLLER_BYTES = 4
_NODE_ID_BYTES = 4
_PORT_BYTES = 4
_TOPIC_ID_BYTES = 16
_OPERATIONS_BYTES = 4
_LAYOUT = PartitionLayout(flexible=True, leader_epoch=True, node_arrays=3)
_PARTITION = struct.Struct(">hiii")
"""Error code, index, leader, leader epoch."""


class PartitionState(NamedTuple):
    """A partition: node IDs of its leader (-1 for none), its replicas, and its ISR."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """ISR without offline replicas."""


class TopicPartitions(NamedTuple):
    """A topic of a response, whose partitions are not read yet."""

    error_code: int
    name: str | None
    topic_id: bytes
    encoded: bytes
    """Its partitions as the response has them, with their number before them."""


@parsing
def split_topics(body: Buffer) -> list[TopicPartitions]:
    """Return the topics of a Metadata v12 response. Raises ProtocolError."""
    data = memoryview(body)
    walker = PartitionWalker(_LAYOUT)
    count, at = read_count(data, _THROTTLE_BYTES, True)
    for _ in range(count):
        at = skip_string(data, at + _NODE_ID_BYTES, True) + _PORT_BYTES
        at = skip_tags(data, skip_string(data, at, True))
    at = skip_string(data, at, True) + _CONTROLLER_BYTES
    count, at = read_count(data, at, True)
    topics = []
    for _ in range(count):
        (error_code,) = INT16.unpack_from(data, at)
        name, at = read_nullable_string(data, at + INT16.size, True)
        check_end(data, at + _TOPIC_ID_BYTES)
        topic_id = bytes(data[at : at + _TOPIC_ID_BYTES])
        start = at + _TOPIC_ID_BYTES + 1
        partitions, at = read_count(data, start, True)
        at = walker.skip(data, at, max(partitions, 0))
        topics.append(TopicPartitions(error_code, name, topic_id, bytes(data[start:at])))
        at = skip_tags(data, at + _OPERATIONS_BYTES)
    check_end(data, skip_tags(data, at))
    return topics


@parsing
def read_partitions(encoded: bytes) -> dict[int, PartitionState]:
    """Return the partitions in `TopicPartitions.encoded` by index. Raises ProtocolError.

    An error of a partition (no leader, a replica offline) shows in its state, and is not kept itself.
    """
    data = memoryview(encoded)
    same: dict[tuple[int, ...], tuple[int, ...]] = {}
    count, at = read_count(data, 0, True)
    states = {}
    for _ in range(count):
        _, index, leader, leader_epoch = _PARTITION.unpack_from(data, at)
        replicas, at = _read_nodes(data, at + _PARTITION.size)
        isr, at = _read_nodes(data, at)
        offline, at = _read_nodes(data, at)
        at = skip_tags(data, at)
        if offline:
            isr = tuple(node for node in isr if node not in offline)
        states[index] = PartitionState(
            leader, leader_epoch, same.setdefault(replicas, replicas), same.setdefault(isr, isr)
        )
    check_end(data, at)
    return states


def _read_nodes(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    count, at = read_count(data, at, True)
    if count <= 0:
        return (), at
    return struct.unpack_from(f">{count}i", data, at), at + 4 * count
