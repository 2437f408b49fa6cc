"""The shard of each partition, and the names of the store's keys."""

from __future__ import annotations

import zlib
from struct import Struct

_PARTITION = Struct(">16sI")
PARTITION_BYTES = _PARTITION.size
NEIGHBOURS = 16
"""Number of neighbouring partitions of a topic that share a shard. It is fixed for the life of the data."""

REGISTRY_PREFIX = "diskless:{registry}:"
FLEET_PREFIX = "diskless:{registry}:fleet:"
"""Prefix of the fleet's keys; in the registry's slot, because a heartbeat reads both."""
REPLICATION_PREFIX = "diskless:{replication}:"
STORE_KEY = "diskless:{registry}:store"
"""Key of a hash with the values that must stay as they were when the store was first used."""


def partition_key(topic_id: bytes, partition: int) -> bytes:
    """Return topic ID and partition as the 20 bytes that identify a log everywhere in the store.

    Raises ValueError if the topic ID does not have 16 bytes, or if the partition is negative.
    """
    if len(topic_id) != 16 or not 0 <= partition < 1 << 31:
        raise ValueError(f"topic ID {topic_id.hex()} with partition {partition} does not name a log")
    return _PARTITION.pack(topic_id, partition)


def split_partition_key(key: bytes) -> tuple[bytes, int]:
    """Return topic ID and partition from such 20 bytes."""
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
    """Return the prefix of all keys of a shard; the part in braces is the hash tag of Redis Cluster."""
    return f"diskless:{{d{shard}}}:"


def script_keys(prefix: str) -> tuple[str, str]:
    """Return the keys that every script declares: one that its part of the store has, and one that never exists.

    While a cluster moves the slot of that part key by key, no server has both. So none runs the script.
    """
    return f"{prefix}meta", f"{prefix}never"


def announcement_channel(shard: int) -> str:
    """Return the channel on which the shard's commits are announced."""
    return shard_prefix(shard) + "announcements"
