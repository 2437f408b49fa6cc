"""Which shard a partition belongs to, and how the store's keys are named."""

from __future__ import annotations

import zlib
from struct import Struct

_PARTITION = Struct(">16sI")
PARTITION_BYTES = _PARTITION.size
NEIGHBOURS = 16
"""Partitions of a topic that share a shard. It is fixed for the life of the data."""

REGISTRY_PREFIX = "diskless:{registry}:"
FLEET_PREFIX = "diskless:{fleet}:"
REPLICATION_PREFIX = "diskless:{replication}:"
STORE_KEY = "diskless:{registry}:store"
"""A hash of what must stay as it was when the store was first used."""


def partition_key(topic_id: bytes, partition: int) -> bytes:
    """Topic ID and partition as the 20 bytes that stand for a log everywhere in the store.

    Raises ValueError where the topic ID is not of 16 bytes or the partition is negative.
    """
    if len(topic_id) != 16 or not 0 <= partition < 1 << 31:
        raise ValueError(f"topic ID {topic_id.hex()} with partition {partition} names no log")
    return _PARTITION.pack(topic_id, partition)


def split_partition_key(key: bytes) -> tuple[bytes, int]:
    """Topic ID and partition of such 20 bytes."""
    topic_id, partition = _PARTITION.unpack(key)
    return topic_id, partition


def shard_of(key: bytes, shards: int) -> int:
    """Return the shard of a partition key, the same in every process and release.

    Neighbouring partitions of a topic share a shard, so a commit calls few shards. The topic ID (CRC-32) decides the
    shard of the first group of partitions; each further group is in the next shard.
    """
    topic_id, partition = split_partition_key(key)
    return (zlib.crc32(topic_id) + partition // NEIGHBOURS) % shards


def shard_prefix(shard: int) -> str:
    """The prefix of all keys of a shard; the part in braces is the hash tag of Redis Cluster."""
    return f"diskless:{{d{shard}}}:"


def announcement_channel(shard: int) -> str:
    """Where the shard's commits are announced."""
    return shard_prefix(shard) + "announcements"
