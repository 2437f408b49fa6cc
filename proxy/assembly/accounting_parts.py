"""Record bytes by topic, and the traffic of this process in object storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.accounting.accounting import Accounts
from proxy.accounting.rollups.counted import totals
from proxy.accounting.rollups.expiry import RollupExpiry
from proxy.accounting.rollups.writer import RollupWriter
from proxy.accounting.topic_names import TopicNames
from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.diskless_parts import DisklessParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.routing_parts import RoutingParts
from proxy.assembly.store_parts import StoreParts
from proxy.assembly.topic_parts import TopicParts
from proxy.config import Settings
from proxy.coordinator.clock import wall_clock_ms


@dataclass(frozen=True, slots=True)
class AccountingParts(RoomParts):
    """The parts that count traffic and write rollups of it."""

    settings: Settings
    accounts: Accounts
    topic_names: TopicNames
    rollups: RollupWriter
    rollup_expiry: RollupExpiry

    def background(self) -> Iterable[Work]:
        """Return the work that looks up names of topics, and writes rollups."""
        yield self.topic_names.follow()
        yield self.rollups.keep_writing()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply how long rollups are kept."""
        self.rollup_expiry.retention_ms = self.settings.rollups.retention_ms


def build_accounting(
    process: ProcessParts,
    stores: StoreParts,
    brokers: BrokerParts,
    diskless: DisklessParts,
    topics: TopicParts,
    routing: RoutingParts,
) -> AccountingParts:
    """Build the parts; nothing is written yet."""
    settings, stats, storage = process.settings, process.stats, stores.storage
    caches = diskless.cache, diskless.cold_cache
    return AccountingParts(
        settings=settings,
        accounts=Accounts(settings.rack, cluster=brokers.cluster, racks=routing.racks, stats=stats),
        topic_names=TopicNames(stats, topics.topics, brokers.cluster.service.ask, process.now, process.turns),
        rollups=RollupWriter(
            settings.rollups,
            storage,
            settings.identity,
            settings.rack,
            totals=lambda: totals(stats, stores.coordinator, caches),
            settle_all=stats.settle_all,
            now_ms=wall_clock_ms,
        ),
        rollup_expiry=RollupExpiry(storage, retention_ms=settings.rollups.retention_ms, now_ms=wall_clock_ms),
    )
