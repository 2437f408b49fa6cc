"""Build the coordinator's state in another store, from the journal and its snapshots, while the present one is in use.

Both stores are views of the same journal, so both give the same offsets. Proxies change to the new one by their setting
`redis.url`, one after another. A proxy would build the state by itself; then its clients would wait for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pydantic import ValidationError

from proxy import config
from proxy.config import Settings
from proxy.coordinator.by_settings import coordinator_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.commands import check_commands
from proxy.coordinator.connect import StoreUnfit, connect, store_name
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface_journal import Journal
from proxy.coordinator.layout import settle_layout
from proxy.guard.identity import adopt_identity, not_together, store_identity, stored_identity
from proxy.guard.journal_identity import of_another, stored_journal
from proxy.journal.opened import opened_journal
from proxy.snapshots.stored import StoredSnapshots
from proxy.storage import open_storage
from proxy.storage.interface import ObjectStorage


class Moved(NamedTuple):
    """A store that has all records of the journal, up to the time of the move."""

    partitions: int
    """Partitions of the journal: the shards, and the registry."""
    applied_records: int
    """Records that were applied after the snapshots."""
    seconds: float


def settings_of_target(settings: Settings, url: str) -> Settings:
    """Return the settings with another `redis.url`. Raises StoreUnfit if they are not valid."""
    if settings.journal.mode == "off":
        raise StoreUnfit(
            "journal.mode is off, so only the present store has the order of the records; stop all proxies and jobs, "
            "and copy its data to the new store"
        )
    try:
        target = config.Redis.model_validate(settings.redis.model_dump() | {"url": url})
    except ValidationError as error:
        reasons = "; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())
        raise StoreUnfit(f"--to: {reasons}") from None
    if target.url == settings.redis.url:
        raise StoreUnfit("--to names the store that redis.url names; give the URL of the new store")
    return settings.model_copy(update={"redis": target})


async def move(settings: Settings, url: str, done: Callable[[int], None]) -> Moved:
    """Build the state in the store of `url`; call `done` for each partition of the journal.

    Raises StoreUnfit, CoordinatorUnavailable and StorageError.
    """
    target = settings_of_target(settings, url)
    storage = open_storage(settings.storage, settings.storage_class)
    await storage.open(try_out=False)
    try:
        client = await connect(target.redis)
        try:
            async with opened_journal(settings) as journal:
                assert journal is not None
                return await build(client, target, storage, journal, done)
        finally:
            await client.aclose()
    finally:
        await storage.close()


async def build(
    client: Store, target: Settings, storage: ObjectStorage, journal: Journal, done: Callable[[int], None]
) -> Moved:
    """Do what `move` does, with an open store, storage and journal. Raises as `move`."""
    began_s = time.monotonic()
    noted = await stored_journal(storage)
    if noted != journal.identity.hex():
        raise StoreUnfit(of_another(journal.identity.hex(), noted or "not begun"))
    await check_fitness(client, target.redis, is_view=True)
    await check_commands(client, target.redis)
    identity = await stored_identity(storage)
    in_store, _ = await store_identity(client)
    if identity is None or (in_store is not None and in_store != identity):
        problem = not_together(in_store, identity) or "the deployment has no data yet; set redis.url, and start"
        raise StoreUnfit(f"{store_name(target.redis)}: {problem}")
    await settle_layout(client, target.redis)
    await adopt_identity(client, identity)
    coordinator = coordinator_on(client, target, journal, StoredSnapshots(storage, journal))
    coordinator.shards.expect_identity(identity)
    assert coordinator.view is not None
    partitions = target.redis.shards + 1
    for partition in range(partitions):
        await coordinator.view.bring_up(partition)
        done(1)
    return Moved(partitions, coordinator.view.helped_records, time.monotonic() - began_s)
