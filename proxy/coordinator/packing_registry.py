"""Entries of the registry of diskless topics, as `lua/registry.lua` packs them."""

from __future__ import annotations

import json
from struct import Struct

from proxy.coordinator.interface_registry import UNKNOWN_STATE, DisklessTopic

ENTRY = Struct(">B16sII")
"""State, topic ID, partitions, length of the owner's name; the name and the configs as JSON follow."""
RESERVED, LIVE, DELETING = 1, 2, 3
_STATES = {RESERVED: "reserved", LIVE: "live", DELETING: "deleting"}


def pack_entry(state: int, topic_id: bytes, partitions: int, owner: str, configs: dict[str, str]) -> bytes:
    """Return an entry."""
    packed_owner = owner.encode()
    return ENTRY.pack(state, topic_id, partitions, len(packed_owner)) + packed_owner + json.dumps(configs).encode()


def unpack_entry(name: str, entry: bytes) -> DisklessTopic:
    """Return the topic of an entry."""
    state, topic_id, partitions, owner_bytes = ENTRY.unpack_from(entry)
    configs = json.loads(entry[ENTRY.size + owner_bytes :])
    owner = entry[ENTRY.size : ENTRY.size + owner_bytes].decode()
    return DisklessTopic(name, topic_id, partitions, _STATES.get(state, UNKNOWN_STATE), configs, owner)
