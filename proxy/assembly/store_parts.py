"""The coordinator's store and object storage."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts
from proxy.coordinator.by_settings import coordinator_on, registry_from_journal, registry_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.nodes import Nodes
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.registry_from_journal import RegistryFromJournal
from proxy.journal.journal import KafkaJournal
from proxy.journal.opened import journal_on
from proxy.snapshots.stored import StoredSnapshots
from proxy.storage.counted import CountedStorage
from proxy.storage.interface import ObjectStorage


@dataclass(frozen=True, slots=True)
class StoreParts(RoomParts):
    """The connections to the stores that all proxies share."""

    store: Store
    """The coordinator's store."""
    storage: CountedStorage
    """Object storage."""
    coordinator: RedisCoordinator
    registry: RedisTopicRegistry
    registry_from_journal: RegistryFromJournal | None
    """The registry while the store is away; None without a journal."""
    fleet_store: RedisFleetStore
    nodes: Nodes
    """The servers of the store, for the admin port."""
    journal: KafkaJournal | None
    """The order of all writes to the store; None if the store itself is the order."""
    snapshots: StoredSnapshots | None
    """Snapshots of the store; None without a journal."""

    async def close(self) -> None:
        """Close the journal and the connections to both."""
        if self.journal is not None:
            await self.journal.close()
        await self.storage.close()
        await self.store.aclose()


def build_stores(process: ProcessParts, brokers: BrokerParts, storage: ObjectStorage, store: Store) -> StoreParts:
    """Build the parts on a storage and a store that nothing has connected to yet."""
    settings = process.settings
    journal = journal_on(brokers.cluster, settings, process.stats)
    counted = CountedStorage(storage, process.stats)
    snapshots = None if journal is None else StoredSnapshots(counted, journal)
    coordinator = coordinator_on(store, settings, journal, snapshots)
    return StoreParts(
        store=store,
        storage=counted,
        coordinator=coordinator,
        registry=registry_on(store, settings, coordinator),
        registry_from_journal=registry_from_journal(coordinator.view, journal, snapshots),
        fleet_store=RedisFleetStore(store),
        nodes=Nodes(store, settings.redis),
        journal=journal,
        snapshots=snapshots,
    )
