"""All parts of one process, room by room."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from proxy.assembly.accounting_parts import AccountingParts, build_accounting
from proxy.assembly.broker_parts import BrokerParts, build_brokers
from proxy.assembly.client_parts import ClientParts, build_clients
from proxy.assembly.creation_parts import CreationParts, build_creation
from proxy.assembly.diskless_parts import DisklessParts, build_diskless
from proxy.assembly.guard_parts import GuardParts, build_guard
from proxy.assembly.housekeeping_parts import HousekeepingParts, build_housekeeping
from proxy.assembly.marker_parts import MarkerParts, build_markers
from proxy.assembly.process_parts import ProcessParts, build_process
from proxy.assembly.replica_parts import ReplicaParts, build_replicas
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.routing_parts import RoutingParts, build_routing
from proxy.assembly.store_parts import StoreParts, build_stores
from proxy.assembly.topic_parts import TopicParts, build_topics
from proxy.assembly.transaction_parts import TransactionParts, build_transactions
from proxy.coordinator.fleet_lease import FleetLease

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.coordinator.cluster import Store
    from proxy.process.sharing import Sharing
    from proxy.security.tls import TlsFiles
    from proxy.storage.interface import ObjectStorage


@dataclass(frozen=True, slots=True)
class Parts:
    """The rooms, in the order in which they are built: each uses rooms above it only."""

    process: ProcessParts
    brokers: BrokerParts
    stores: StoreParts
    diskless: DisklessParts
    replicas: ReplicaParts
    topics: TopicParts
    routing: RoutingParts
    markers: MarkerParts
    transactions: TransactionParts
    creation: CreationParts
    accounting: AccountingParts
    housekeeping: HousekeepingParts
    guard: GuardParts
    clients: ClientParts

    @property
    def rooms(self) -> tuple[RoomParts, ...]:
        """All rooms, in the order in which they are built."""
        return tuple(getattr(self, room.name) for room in fields(self))

    @property
    def _working(self) -> tuple[RoomParts, ...]:
        """The rooms that do background work: the storage process leaves to workers what others can do."""
        if self.diskless.server is None:
            return self.rooms
        return self.process, self.brokers, self.diskless, self.topics, self.routing, self.accounting, self.guard

    def background(self) -> Iterable[Work]:
        """Return the background work of this process."""
        for room in self._working:
            yield from room.background()

    def background_on_store(self) -> Iterable[Work]:
        """Return the background work of this process that needs the coordinator's store."""
        for room in self._working:
            yield from room.background_on_store()

    async def close(self) -> None:
        """Close all rooms, each before those that it uses."""
        for room in reversed(self.rooms):
            await room.close()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the settings that parts keep. `changed` has the dotted paths of those that a reload has changed."""
        for room in self.rooms:
            room.take_settings(changed)


def build_parts(
    settings: Settings,
    storage: ObjectStorage,
    store: Store,
    listener_tls: Iterable[TlsFiles] = (),
    sharing: Sharing | None = None,
) -> Parts:
    """Build all parts in the running event loop. None of them has connected to anything yet.

    `listener_tls`: certificates of the listeners, which the metrics report. `sharing`: of a proxy with workers.
    """
    lease = FleetLease()
    process = build_process(settings)
    brokers = build_brokers(process)
    stores = build_stores(process, brokers, storage, store)
    diskless = build_diskless(process, stores, sharing)
    replicas = build_replicas(process, brokers)
    topics = build_topics(process, stores, brokers, lease)
    has_clients = sharing is None or not sharing.is_storage
    routing = build_routing(process, stores, brokers, topics, lease, has_clients=has_clients)
    markers = build_markers(process, stores, brokers, diskless, routing)
    creation = build_creation(process, stores, brokers, diskless, topics, routing)
    accounting = build_accounting(process, stores, brokers, diskless, topics, routing)
    housekeeping = build_housekeeping(process, stores, brokers, topics, routing, creation, accounting)
    return Parts(
        process=process,
        brokers=brokers,
        stores=stores,
        diskless=diskless,
        replicas=replicas,
        topics=topics,
        routing=routing,
        markers=markers,
        transactions=build_transactions(process, stores, brokers, markers),
        creation=creation,
        accounting=accounting,
        housekeeping=housekeeping,
        guard=build_guard(process, stores, topics, housekeeping),
        clients=build_clients(process, brokers, topics, replicas, listener_tls),
    )
