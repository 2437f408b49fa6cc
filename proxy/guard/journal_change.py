"""Begins a journal for the data that a store has, or ends the journal of a deployment. No proxy may run meanwhile.

Each step can be the last one: a command that was broken off can be repeated. Until it has ended, proxies of either mode
reject the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.adoption import Order, give_to_journal, give_to_store, parts_of
from proxy.coordinator.by_settings import coordinator_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.copying import CopyGivenUp
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Journal, JournalUnavailable
from proxy.coordinator.journal_records import JournalledCall, pack_record
from proxy.coordinator.layout import check_layout, settle_layout
from proxy.coordinator.view_calls import part_name
from proxy.guard.identity import adopt_identity, check_identity, store_identity, stored_identity
from proxy.guard.journal_identity import forget_journal, note_journal, of_another, stored_journal
from proxy.guard.journal_loss import Restored, restore_snapshots
from proxy.guard.remembered import forget_sides
from proxy.journal.errors import JournalUnfit
from proxy.journal.journal import KafkaJournal
from proxy.snapshots.snapshotter import Snapshotter
from proxy.snapshots.stored import StoredSnapshots, drop_snapshots, has_contents
from proxy.storage import ObjectStorage, open_storage
from proxy.telemetry.stats import Stats

FIRST = 1
"""Position of the first record that a proxy appends: the one before it names the deployment."""
_READ_BYTES = 65_536


class Change(NamedTuple):
    """The parts that a command works on."""

    settings: Settings
    client: Store
    storage: ObjectStorage
    journal: Journal

    @property
    def partitions(self) -> int:
        """Return the number of partitions of the journal; the last one is the registry's."""
        return self.settings.redis.shards + 1


@asynccontextmanager
async def opened_change(settings: Settings, *, create_missing: bool, emptied: bool = False) -> AsyncIterator[Change]:
    """Open store, storage and journal of the settings, whatever their `journal.mode` is.

    `create_missing`: create the journal's topic if it is missing. `emptied`: the store may have lost its identity.

    Raises StoreUnfit, CoordinatorUnavailable and StorageError.
    """
    storage = open_storage(settings.storage, settings.storage_class)
    await storage.open(try_out=False)
    client = await connect(settings.redis)
    cluster = Cluster(settings)
    stats = Stats(settings.limits.max_counted_topics, settings.diskless_append_commit_interval_ms)
    journal = KafkaJournal(settings.journal, cluster, partitions=settings.redis.shards + 1, stats=stats)
    try:
        await check_layout(client, settings.redis)
        if not emptied or (await store_identity(client))[0] is not None:
            await check_identity(client, storage)
        await _nobody_runs(client)
        await cluster.refresh()
        await journal.open(create_missing=create_missing)
        yield Change(settings, client, storage, journal)
    except JournalUnfit as error:
        raise StoreUnfit(str(error)) from error
    except (BrokerUnreachable, JournalUnavailable) as error:
        raise CoordinatorUnavailable(f"the journal does not answer: {error}") from error
    finally:
        await journal.close()
        cluster.service.close()
        await client.aclose()
        await storage.close()


async def _nobody_runs(client: Store) -> None:
    if seen := await RedisFleetStore(client).look():
        names = sorted({one.record.proxy_id.rpartition("#")[0] for one in seen})
        left_s = max(one.lease_left_ms for one in seen) / 1000
        raise StoreUnfit(
            f"proxies run: {', '.join(names)}; stop them all. A proxy that was killed counts until its lease ends, in "
            f"{left_s:.0f} s"
        )


async def restore(change: Change, gap: int) -> list[Restored]:
    """Bring a store that was lost together with its journal back to its newest snapshots; `begin_journal` follows.

    `gap`: offsets that may have been given in a shard since. Raises StoreUnfit if there is nothing to restore from;
    CoordinatorUnavailable, JournalUnavailable and StorageError.
    """
    noted = await stored_journal(change.storage)
    if noted is None:
        raise StoreUnfit("the deployment has no journal, so there are no snapshots to restore")
    if noted == change.journal.identity.hex():
        raise StoreUnfit(_has_it(change))
    identity = await stored_identity(change.storage)
    if identity is not None:
        await settle_layout(change.client, change.settings.redis)
        await adopt_identity(change.client, identity)
    return await restore_snapshots(change.client, change.storage, change.settings, bytes.fromhex(noted), gap)


async def begin_journal(change: Change) -> None:
    """Let the journal begin with the data that the store has.

    Raises StoreUnfit if there is nothing to begin, if the store can't be handed over, or if the journal is in use;
    CoordinatorUnavailable, JournalUnavailable and StorageError.
    """
    identity = change.journal.identity
    noted = await stored_journal(change.storage)
    marker = await _marker(change)
    if noted != identity.hex():
        await _check_parts(change, noted)
        await _claim(change, marker)
        await give_to_journal(change.client, change.settings.redis.shards, identity, FIRST)
        await _take_snapshots(change)
        await note_journal(change.storage, identity.hex())
    await _trim(change, marker)
    if noted is not None and noted != identity.hex():
        await drop_snapshots(change.storage, noted)


async def _marker(change: Change) -> bytes:
    """Return the first record of each partition. No script has its name, so it changes nothing."""
    identity, _ = await store_identity(change.client)
    if identity is None:
        raise StoreUnfit("there are no data yet: set journal.mode: required, and start a proxy")
    return pack_record(JournalledCall("begin", (identity.encode(),)))


async def _check_parts(change: Change, noted: str | None) -> None:
    """Raise StoreUnfit for a store that lacks data, or that is a view of an unknown journal."""
    identity = change.journal.identity
    earlier = None if noted is None else bytes.fromhex(noted)
    parts = await parts_of(change.client, change.settings.redis.shards)
    for partition, part in enumerate(parts):
        name = part_name(change.settings.redis.shards, partition)
        if part.problem:
            raise StoreUnfit(part.problem)
        if part.order is Order.JOURNAL and part.journal not in (identity, earlier):
            raise StoreUnfit(f"{name} of the store is a view of another journal; fix redis.url or storage.url")
        if part.order is Order.NOTHING and noted and await has_contents(change.storage, noted, partition):
            raise StoreUnfit(
                f"{name} of the store is empty, and there are snapshots of it: the store has lost its data; restore a "
                "backup of the store, or accept the loss with --from-snapshots"
            )


async def _claim(change: Change, marker: bytes) -> None:
    """Make the marker the first record of each partition of an empty journal."""
    for partition in range(change.partitions):
        if await change.journal.end(partition) == 0:
            await change.journal.append(partition, marker)
        elif not await _has_only(change.journal, partition, marker):
            raise StoreUnfit(
                f"the topic {change.settings.journal.topic} has records that are not this deployment's; set "
                "journal.topic to another name, or delete the topic if nobody uses it"
            )


async def _has_only(journal: Journal, partition: int, marker: bytes) -> bool:
    """Return whether a partition has all its records, and each is the marker: an append may have been repeated."""
    if await journal.start(partition) > 0:
        return False
    records = await journal.read(partition, 0, _READ_BYTES)
    return len(records) == await journal.end(partition) and all(record.value == marker for record in records)


async def _take_snapshots(change: Change) -> None:
    snapshots = StoredSnapshots(change.storage, change.journal)
    view = coordinator_on(change.client, change.settings, change.journal, snapshots).view
    assert view is not None
    taker = Snapshotter(change.settings.journal, view, change.journal, snapshots)
    for partition in range(change.partitions):
        try:
            await taker.take(partition)
        except CopyGivenUp as error:
            raise CoordinatorUnavailable(f"no snapshot of partition {partition} could be taken: {error}") from error
        if not await snapshots.kept(partition):
            raise StoreUnfit("the store rejects INFO replication; let the user of redis.url run INFO")


async def _trim(change: Change, marker: bytes) -> None:
    """Delete the markers: without them, a rebuild that finds no snapshot fails, and does not begin with nothing."""
    untrimmed = [one for one in range(change.partitions) if await change.journal.start(one) < FIRST]
    for partition in untrimmed:
        records = await change.journal.read(partition, 0, _READ_BYTES)
        if not records or records[0].value != marker:
            untrimmed = []
    if not untrimmed:
        raise StoreUnfit(_has_it(change))
    for partition in untrimmed:
        await change.journal.trim(partition, FIRST)


def _has_it(change: Change) -> str:
    return (
        f"the topic {change.settings.journal.topic} is the journal that this deployment has: there is nothing to "
        "begin. If it has lost records, delete the topic or set journal.topic to another name, and begin again"
    )


async def end_journal(change: Change) -> None:
    """Let the store be the order of its writes again, after it has applied all records of the journal.

    Raises StoreUnfit if the deployment has no journal or another one; CoordinatorUnavailable, JournalUnavailable and
    StorageError.
    """
    identity = change.journal.identity.hex()
    noted = await stored_journal(change.storage)
    if noted is None:
        raise StoreUnfit("the deployment has no journal; set journal.mode: off")
    if noted != identity:
        raise StoreUnfit(of_another(identity, noted))
    snapshots = StoredSnapshots(change.storage, change.journal)
    view = coordinator_on(change.client, change.settings, change.journal, snapshots).view
    assert view is not None
    shards = change.settings.redis.shards
    for partition, part in enumerate(await parts_of(change.client, shards)):
        if part.order is not Order.STORE:
            await view.bring_up(partition)
            await give_to_store(change.client, shards, partition)
    await forget_sides(change.storage)
    await drop_snapshots(change.storage, identity)
    await forget_journal(change.storage)
