"""The work of `diskless-proxy coordinator unfence`: accept a loss, so that shards continue without reusing an offset.

A shard's counter of offsets bounds what any of its logs can have lost: the offsets given in the lives of the server
that the store lacks (`lua/fence.lua`). Every log of the shard is raised by that number, plus a gap for offsets that no
live proxy knows about. Readers skip the gap. Object storage cannot show what was lost: a segment does not say which
partitions its batches belong to.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from proxy.coordinator.interface_registry import RegistryChange
from proxy.coordinator.packing_state import Unfenced
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import partition_key, shard_of
from proxy.guard.identity import adopt_identity
from proxy.guard.remembered import UNKNOWN_SIDE, Remembered, read_remembered, remember
from proxy.guard.verdict import Guarded, Verdict, examine
from proxy.storage.interface import StorageError

_LOOKS_WAITED_FOR = 2.5
"""Number of `redis.check_interval_ms` in which every live proxy has reported what it knows about a fenced shard."""

_REGISTRY_GAP = 1_000_000
"""Versions added to the highest known one: a proxy that has just been cut off may know a few more."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting a loss."""

    shards: dict[int, Unfenced]
    registry_version: int
    """Version that the registry was raised to; -1 if it was not concerned."""
    identity_given: bool
    """Whether an emptied store was given the identity of the objects."""


class NothingToAccept(Exception):
    """The requested shards are not fenced, or can't be unfenced in this way.

    The text gives the reason and the next step.
    """


def chosen(verdict: Verdict, shard: int | None) -> list[int]:
    """Return the shards to unfence: all that are fenced, or one of them. Raises NothingToAccept."""
    if None not in (verdict.identity, verdict.storage_identity) and verdict.identity != verdict.storage_identity:
        raise NothingToAccept(f"{verdict.unfit}; fix the URL, there is no loss to accept")
    fenced = [one.shard for one in verdict.shards if one.fenced]
    if shard is None:
        if not fenced and not verdict.registry_went_back and verdict.identity is not None:
            raise NothingToAccept("no shard is fenced, and the registry has lost no change; there is nothing to accept")
        return fenced
    if verdict.identity is None:
        raise NothingToAccept("the store is empty, so all shards are lost; use --all to accept that")
    if shard not in fenced:
        raise NothingToAccept(f"shard {shard} is not fenced; fenced shards: {', '.join(map(str, fenced)) or 'none'}")
    return [shard]


async def accept_loss(guarded: Guarded, shard: int | None, gap: int) -> Accepted:
    """Unfence one shard, or all and the registry; may be repeated after it was broken off.

    `gap`: offsets that may have been given in a shard beyond what anybody knows. Raises NothingToAccept,
    CoordinatorUnavailable and StorageError.
    """
    verdict = await examine(guarded)
    shards = chosen(verdict, shard)
    identity_given = False
    if verdict.identity is None and verdict.storage_identity is not None:
        await adopt_identity(guarded.client, verdict.storage_identity)
        identity_given = True
    # From here on proxies that live find the shards fenced, if they did not yet, and each says what it knows of them.
    for side in verdict.sides:
        await guarded.coordinator.shards.missing({one: state for one, state in side.shards.items() if one in shards})
    await asyncio.sleep(_LOOKS_WAITED_FOR * guarded.settings.redis.check_interval_ms / 1000)
    registry_version = -1
    if shard is None:
        registry_version = await _accept_registry(guarded, verdict)
    logs = await logs_by_shard(guarded.registry, guarded.settings.redis.shards)
    done = {}
    for one in shards:
        done[one] = await guarded.coordinator.shards.unfence(one, gap, logs.get(one, ()))
    looks = await guarded.coordinator.shards.look({})
    if verdict.storage_identity is not None:
        states = {one: looks[one].state for one in shards}
        accepted = RegistryChange(registry_version)
        # Proxies remove what other sides have kept, as the store answers them that it lacks nothing of it any more.
        here = next((state.life.decode() for state in states.values() if any(state.life)), UNKNOWN_SIDE)
        with suppress(StorageError):  # a proxy keeps it at this moment, or will
            await remember(guarded.storage, here, Remembered(verdict.storage_identity, states, accepted))
    return Accepted(done, registry_version, identity_given)


async def _accept_registry(guarded: Guarded, before: Verdict) -> int:
    """Let the registry continue after all versions that anybody has seen, if it went back; return the version, or -1.

    A proxy that has seen a higher version would distrust the registry forever. So all proxies are asked again, now that
    each had the chance to report.
    """
    remembered = await read_remembered(guarded.storage, before.storage_identity or "")
    registry = await guarded.registry.load(remembered.registry_change)
    seen = max(
        before.registry_version_seen,
        remembered.registry_change.version,
        registry.version,
        await guarded.fleet_store.newest_registry_version(),
    )
    if seen <= registry.version and not registry.why_fenced:
        return -1
    return await guarded.registry.accept_loss(seen + _REGISTRY_GAP)


async def logs_by_shard(registry: RedisTopicRegistry, count: int) -> dict[int, list[tuple[bytes, int]]]:
    """Return the logs that live according to the registry: an emptied shard does not know of them any more.

    `count`: number of shards.
    """
    shards: dict[int, list[tuple[bytes, int]]] = {}
    for topic in (await registry.load()).topics:
        if topic.state != "live":
            continue
        for partition in range(topic.partitions):
            shard = shard_of(partition_key(topic.topic_id, partition), count)
            shards.setdefault(shard, []).append((topic.topic_id, partition))
    return shards
