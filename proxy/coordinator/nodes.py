"""The servers of the coordinator's store, and how much each of them has to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.cluster import Cluster, Store, primaries
from proxy.coordinator.connect import address_of, store_call
from proxy.coordinator.info import read_allowed_info
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.shards import script_keys, shard_prefix

SHORTEST_S, LONGEST_S = 0.5, 60.0
"""Time between two looks whose counters make a rate."""
PAUSE_S = 1.0
"""Time between two looks if there was none before."""
_SECTIONS = ("cpu", "memory", "replication", "commandstats")


class Look(NamedTuple):
    """A server at one moment. A value is None if the server does not report it."""

    node: str
    """Address of the server."""
    at_s: float
    slots: int | None
    """None if the store is not a cluster."""
    shards: tuple[int, ...]
    script_runs: int | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """0 without a limit."""
    replicas: int | None = None
    lag_bytes: int | None = None
    """Bytes that the replica which is furthest behind does not have yet; None without replicas."""
    problem: str = ""
    """Why the server reports nothing."""


class Node(NamedTuple):
    """A server, and its work between two looks."""

    look: Look
    runs_per_second: float | None
    """Runs of scripts."""
    cpu_share: float | None
    """Part of one core."""


class Nodes:
    """Looks at the servers when somebody asks, and not otherwise."""

    def __init__(self, store: Store, settings: config.Redis) -> None:
        self._store = store
        self._settings = settings
        self._lock = asyncio.Lock()
        self._before: list[Look] = []
        self._seen: list[Node] = []

    async def seen(self) -> list[Node]:
        """Return the servers with their work since the previous look, or within a second if there was none.

        A look that is younger than half a second is returned again. Raises CoordinatorUnavailable.
        """
        async with self._lock:
            age_s = time.monotonic() - self._before[0].at_s if self._before else LONGEST_S
            if self._seen and age_s < SHORTEST_S:
                return self._seen
            if age_s >= LONGEST_S:
                self._before = await look_at_nodes(self._store, self._settings)
                await asyncio.sleep(PAUSE_S)
            looks = await look_at_nodes(self._store, self._settings)
            self._seen = with_rates(self._before, looks)
            self._before = looks
            return self._seen


async def look_at_nodes(store: Store, settings: config.Redis) -> list[Look]:
    """Return each server that takes writes, by its address. Raises CoordinatorUnavailable."""
    async with store_call(store, "reading the cluster's map"):
        servers = await primaries(store)
    looks = await asyncio.gather(*(_look(server) for server in servers.values()))
    if isinstance(store, Cluster):
        slots = store.slots_by_server()
        placed = [store.name_of(script_keys(shard_prefix(shard))[0]) for shard in range(settings.shards)]
        found = [
            look._replace(
                node=name,
                slots=slots.get(name, 0),
                shards=tuple(shard for shard, place in enumerate(placed) if place == name),
            )
            for name, look in zip(servers, looks, strict=True)
        ]
        return sorted(found, key=lambda one: (one.shards, one.node))
    (look,) = looks
    if look.problem:
        raise CoordinatorUnavailable(look.problem)
    return [look._replace(node=address_of(settings), shards=tuple(range(settings.shards)))]


async def _look(server: Redis) -> Look:
    look = Look("", time.monotonic(), None, ())
    try:
        async with store_call(server, "looking at the store's servers"):
            cpu, memory, replication, stats = await read_allowed_info(server, *_SECTIONS)
    except CoordinatorUnavailable as error:
        return look._replace(problem=str(error))
    return look._replace(
        at_s=time.monotonic(),
        script_runs=int(stats.get("cmdstat_evalsha", {}).get("calls", 0)) if stats else None,
        cpu_s=float(cpu["used_cpu_sys"]) + float(cpu["used_cpu_user"]) if "used_cpu_user" in cpu else None,
        memory_bytes=_number(memory, "used_memory"),
        memory_limit_bytes=_number(memory, "maxmemory"),
        replicas=_number(replication, "connected_slaves"),
        lag_bytes=lag_of(replication),
    )


def _number(section: Mapping[str, Any], name: str) -> int | None:
    return int(section[name]) if name in section else None


def lag_of(replication: Mapping[str, Any]) -> int | None:
    """Return the bytes that the replica which is furthest behind does not have yet, by INFO replication."""
    attached = range(int(replication.get("connected_slaves", 0)))
    rows = [replication[f"slave{number}"] for number in attached if f"slave{number}" in replication]
    offsets = [int(row["offset"]) for row in rows if isinstance(row, Mapping) and "offset" in row]
    if not offsets or "master_repl_offset" not in replication:
        return None
    return max(0, int(replication["master_repl_offset"]) - min(offsets))


def with_rates(before: Sequence[Look], after: Sequence[Look]) -> list[Node]:
    """Return servers with their work between two looks; a counter that went back, or that is new, makes no rate."""
    earlier = {one.node: one for one in before}
    return [_with_rate(earlier.get(one.node), one) for one in after]


def _with_rate(before: Look | None, after: Look) -> Node:
    if before is None or after.at_s <= before.at_s:
        return Node(after, None, None)
    passed_s = after.at_s - before.at_s
    return Node(
        after,
        _rate(before.script_runs, after.script_runs, passed_s),
        _rate(before.cpu_s, after.cpu_s, passed_s),
    )


def _rate(before: float | None, after: float | None, passed_s: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / passed_s
