"""The findings of `diskless-proxy coordinator check`: the server, the identities, and each shard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from proxy.config import Settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Journal, JournalUnavailable
from proxy.coordinator.layout import check_layout
from proxy.coordinator.packing_state import NOTHING_KNOWN, ShardLook, ShardState
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.guard.identity import not_together, store_identity, stored_identity
from proxy.guard.remembered import Remembered, read_sides
from proxy.journal.opened import opened_journal
from proxy.snapshots.verdict import SnapshotVerdict, examine_snapshots
from proxy.storage import ObjectStorage, open_storage


@dataclass(frozen=True, slots=True)
class Guarded:
    """The store and storage of a settings file, opened."""

    settings: Settings
    client: Store
    coordinator: RedisCoordinator
    registry: RedisTopicRegistry
    fleet_store: RedisFleetStore
    storage: ObjectStorage
    journal: Journal | None
    """The journal; None without one."""


@asynccontextmanager
async def open_guarded(settings: Settings) -> AsyncIterator[Guarded]:
    """For the time of the context. Raises StorageError, CoordinatorUnavailable, StoreUnfit for a layout not known."""
    storage = open_storage(settings.storage, settings.storage_class)
    await storage.open(try_out=False)
    client = await connect(settings.redis)
    try:
        await check_layout(client, settings.redis)
        async with opened_journal(settings) as journal:
            coordinator = coordinator_on(client, settings, journal)
            registry = registry_on(client, settings, coordinator)
            yield Guarded(settings, client, coordinator, registry, RedisFleetStore(client), storage, journal)
    finally:
        await client.aclose()
        await storage.close()


@dataclass(frozen=True, slots=True)
class ShardVerdict:
    """The finding about one shard."""

    shard: int
    look: ShardLook
    remembered: ShardState
    """State kept in object storage; NOTHING_KNOWN if there is none."""

    @property
    def fenced(self) -> bool:
        """Return whether the shard is rejected, or will be by the next proxy that uses it."""
        return bool(self.look.why_fenced)

    @property
    def offsets_lost(self) -> int:
        """Return the number of offsets that were given and are now missing."""
        return self.look.offsets_lost


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings about the whole store."""

    unfit: str | None
    """Why the server can't be trusted with commits, or belongs to other objects; None if it can."""
    identity: str | None
    """Identity of the store."""
    storage_identity: str | None
    registry_version: int
    registry_version_seen: int
    """Highest version that anybody is known to have seen, from the kept state and from the live proxies."""
    why_registry_fenced: str
    """Reason why nobody may change the registry: changes of it are lost. Empty if no loss is known."""
    remembered: Remembered
    """The highest of all sides."""
    sides: tuple[Remembered, ...]
    shards: tuple[ShardVerdict, ...]
    snapshots: tuple[SnapshotVerdict, ...] = ()
    """The snapshots of each partition of the journal; empty without a journal."""

    @property
    def registry_went_back(self) -> bool:
        """Return whether changes of the registry are lost and the loss has not been accepted."""
        return bool(self.why_registry_fenced)

    @property
    def all_well(self) -> bool:
        """Nothing for anyone to see to."""
        problems = any(one.fenced for one in self.shards) or any(one.problem for one in self.snapshots)
        return self.unfit is None and not self.registry_went_back and not problems


async def examine(guarded: Guarded) -> Verdict:
    """Look at everything, change nothing. Raises CoordinatorUnavailable and StorageError."""
    unfit = None
    try:
        is_view = guarded.settings.journal.mode == "required"
        await check_fitness(guarded.client, guarded.settings.redis, is_view=is_view)
    except StoreUnfit as error:
        unfit = str(error)
    identity, _ = await store_identity(guarded.client)
    storage_identity = await stored_identity(guarded.storage)
    unfit = unfit or not_together(identity, storage_identity)
    sides = await read_sides(guarded.storage, storage_identity or "")
    remembered = Remembered(storage_identity or "")
    looks = await guarded.coordinator.shards.look({})
    for side in sides.values():
        remembered = remembered.merged(side)
        by_side = await guarded.coordinator.shards.look(side.shards)
        # A side that knows more than the proxies that live have reported.
        looks = [
            max(pair, key=lambda look: (bool(look.why_fenced), look.writes_lost))
            for pair in zip(looks, by_side, strict=True)
        ]
    seen = max(remembered.registry_change.version, await guarded.fleet_store.newest_registry_version())
    guarded.registry.expect_identity(storage_identity or "")
    # After what was seen of it: it only grows.
    snapshot = await guarded.registry.load(remembered.registry_change, looks=True)
    for side in sides.values():
        if not snapshot.why_fenced:
            snapshot = await guarded.registry.load(side.registry_change, looks=True)
    shards = tuple(
        ShardVerdict(shard, look, remembered.shards.get(shard, NOTHING_KNOWN)) for shard, look in enumerate(looks)
    )
    went_back = snapshot.why_fenced or (
        f"a proxy knows its version {seen}, and it is at {snapshot.version}" if snapshot.version < seen else ""
    )
    return Verdict(
        unfit,
        identity,
        storage_identity,
        snapshot.version,
        seen,
        went_back,
        remembered,
        tuple(sides.values()),
        shards,
        await _snapshots(guarded),
    )


async def _snapshots(guarded: Guarded) -> tuple[SnapshotVerdict, ...]:
    if guarded.journal is None:
        return ()
    try:
        return await examine_snapshots(guarded.storage, guarded.journal, guarded.settings.redis.shards + 1)
    except JournalUnavailable as error:
        raise CoordinatorUnavailable(f"the journal does not answer: {error}") from error
