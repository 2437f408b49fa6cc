"""Hands the order of a store's writes to a journal, or takes it back from one.

Every shard and the registry are changed one after another, each in one step. Meanwhile no proxy may use the store. A
part that was changed is left as it is, so the whole can be repeated.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from struct import Struct
from typing import NamedTuple

from proxy.coordinator import scripts
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import store_call
from proxy.coordinator.packing_state import NOTHING_KNOWN, pack_shard_header
from proxy.coordinator.shards import REGISTRY_PREFIX, shard_prefix

_BY_JOURNAL = Struct(">16sq8s")
_STATE = Struct(">8sQ44x16s")
"""Incarnation, sequence, and the identity of the journal, in a shard's STATE (`lua/shard.lua`)."""
_JOURNAL_INCARNATION = b"journal\0"
_REGISTRY_META = f"{REGISTRY_PREFIX}meta"
_REPLIES_DROPPED = 10_000
"""Replies of the registry that are dropped: more positions do not pass before the others have expired."""


class Order(Enum):
    """The holder of the order of a part's writes."""

    NOTHING = auto()
    """Nothing was written yet."""
    STORE = auto()
    JOURNAL = auto()


class Part(NamedTuple):
    """A shard or the registry, as it is found."""

    order: Order
    journal: bytes = b""
    """Identity of the journal."""
    position: int = 0
    """Position of the next record to apply; of a shard without a journal, the number of its writes."""
    problem: str = ""
    """Why its order can't be handed over; empty if it can."""


async def parts_of(client: Store, shards: int) -> list[Part]:
    """Return how each shard is ordered, and the registry, which comes last. Raises CoordinatorUnavailable."""
    return [*[await _shard(client, shard) for shard in range(shards)], await _registry(client)]


async def _shard(client: Store, shard: int) -> Part:
    async with store_call(client, f"reading shard {shard}"):
        state, fenced, unfinished, snapshot = await client.hmget(
            f"{shard_prefix(shard)}meta", ["state", "fenced", "unfinished", "snapshot"]
        )
    problem = ""
    if fenced is not None:
        problem = f"shard {shard} is fenced; see `diskless-proxy coordinator check`"
    elif unfinished is not None:
        problem = f"a script stopped halfway in shard {shard}; start a proxy, which repairs that, and stop it again"
    elif isinstance(snapshot, bytes) and snapshot.startswith(b"L"):
        problem = f"a snapshot of shard {shard} was not loaded to its end; start a proxy, which does that, and stop it"
    if not isinstance(state, bytes):
        return Part(Order.NOTHING, problem=problem)
    incarnation, position, journal = _STATE.unpack_from(state)
    if incarnation == _JOURNAL_INCARNATION:
        return Part(Order.JOURNAL, journal, position, problem)
    return Part(Order.STORE, position=position, problem=problem)


async def _registry(client: Store) -> Part:
    async with store_call(client, "reading the registry of diskless topics"):
        version, journal, fenced, applied = await client.hmget(
            _REGISTRY_META, ["version", "journal", "fenced", "applied"]
        )
    if fenced is not None:
        return Part(Order.STORE, problem="the registry is fenced; see `diskless-proxy coordinator check`")
    if isinstance(journal, bytes):
        return Part(Order.JOURNAL, journal, int(applied or 0))
    return Part(Order.NOTHING if version is None else Order.STORE)


async def give_to_journal(client: Store, shards: int, journal: bytes, position: int) -> None:
    """Make every part a view of a journal, whose next record to apply has a position. Raises CoordinatorUnavailable."""
    for shard in range(shards):
        await _run(client, shards, shard, "adopt_journal", _BY_JOURNAL.pack(journal, position, os.urandom(8)))
    async with store_call(client, "giving the registry to the journal"):
        if await client.hget(_REGISTRY_META, "journal") == journal:
            return
        replies = range(position, position + _REPLIES_DROPPED)
        for first in replies[::1000]:
            await client.unlink(*(f"{REGISTRY_PREFIX}reply:{one}" for one in range(first, first + 1000)))
        await client.hdel(_REGISTRY_META, "life", "settling", "proved")
        await client.hset(_REGISTRY_META, mapping={"applied": position, "journal": journal})


async def give_to_store(client: Store, shards: int, shard: int) -> None:
    """Make a shard the order itself, or the registry, which comes after the last shard. Raises as above."""
    if shard < shards:
        await _run(client, shards, shard, "adopt_store")
        return
    async with store_call(client, "giving the registry to the store"):
        await client.hdel(_REGISTRY_META, "applied", "journal", "proved")


async def _run(client: Store, shards: int, shard: int, name: str, *arguments: bytes) -> None:
    header = pack_shard_header(os.urandom(8), shards, 0, 0, 0, NOTHING_KNOWN)
    await scripts.run(client, name, scripts.Call(shard_prefix(shard), (header, *arguments)))
