"""The work that one proxy does for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.assembly.accounting_parts import AccountingParts
from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.creation_parts import CreationParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.routing_parts import RoutingParts
from proxy.assembly.store_parts import StoreParts
from proxy.assembly.topic_parts import TopicParts
from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.redis import RedisCoordinator
from proxy.housekeeping.garbage import GarbageCollector
from proxy.housekeeping.housekeeper import Housekeeper
from proxy.housekeeping.index import IndexPacker
from proxy.housekeeping.named_diskless import NamedDiskless
from proxy.housekeeping.old_markers import OldMarkers
from proxy.housekeeping.producers import ProducerExpiry
from proxy.housekeeping.retention import Retention
from proxy.housekeeping.shadows import Shadows
from proxy.snapshots.snapshotter import Snapshotter


@dataclass(frozen=True, slots=True)
class HousekeepingParts(RoomParts):
    """The housekeeper has all of it."""

    housekeeper: Housekeeper
    named_diskless: NamedDiskless
    snapshotter: Snapshotter | None
    """None without a journal."""

    def background_on_store(self) -> Iterable[Work]:
        """Return the housekeeping."""
        yield self.housekeeper.keep_house()


def build_housekeeping(
    process: ProcessParts,
    stores: StoreParts,
    brokers: BrokerParts,
    topics: TopicParts,
    routing: RoutingParts,
    creation: CreationParts,
    accounting: AccountingParts,
) -> HousekeepingParts:
    """Build the parts; nothing is deleted yet."""
    settings, storage, coordinator = process.settings, stores.storage, stores.coordinator
    cluster, registry = brokers.cluster, topics.topics
    named_diskless = NamedDiskless(
        cluster,
        process.turns,
        patterns=lambda: settings.default_diskless_topics,
        is_registered=lambda name: registry.find(name) is not None,
    )
    snapshotter = _snapshotter(process, stores)
    shadows = Shadows(
        cluster, registry, creation.reservations, confirm_s=settings.brokers.deleted_topics_confirm_ms / 1000
    )
    old_markers = OldMarkers(
        cluster,
        coordinator.transactions,
        shadows.stray.without_strays,
        kept_ms=settings.transactions.markers_kept_ms,
        now_ms=wall_clock_ms,
    )
    return HousekeepingParts(
        named_diskless=named_diskless,
        snapshotter=snapshotter,
        housekeeper=Housekeeper(
            settings,
            stores.fleet_store,
            routing.fleet.identity,
            cluster,
            Retention(coordinator, registry),
            GarbageCollector(coordinator, storage, settings.garbage, process.stats),
            shadows,
            IndexPacker(coordinator, registry, age_ms=settings.redis.pack_age_ms),
            ProducerExpiry(coordinator, registry),
            fenced=lambda: coordinator.fence.fenced,
            gone_back=lambda: registry.gone_back,
            store_ahead_ms=lambda: _store_ahead_ms(coordinator),
            rollups=accounting.rollup_expiry,
            named_diskless=named_diskless,
            snapshotter=snapshotter,
            old_markers=old_markers,
        ),
    )


def _snapshotter(process: ProcessParts, stores: StoreParts) -> Snapshotter | None:
    view, journal, snapshots = stores.coordinator.view, stores.journal, stores.snapshots
    if view is None or journal is None or snapshots is None:
        return None
    return Snapshotter(process.settings.journal, view, journal, snapshots)


def _store_ahead_ms(coordinator: RedisCoordinator) -> int:
    """Return how far the clock of the coordinator's store is ahead of this machine's; 0 if that is not known."""
    store_time_ms = coordinator.store_time_ms()
    return 0 if store_time_ms is None else store_time_ms - wall_clock_ms()
