"""The parts that know the diskless topics, and the configs that govern their records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.store_parts import StoreParts
from proxy.config import Settings
from proxy.coordinator.fleet_lease import FleetLease
from proxy.topics.classic_proof import ClassicProof
from proxy.topics.topic_defaults import TopicDefaults
from proxy.topics.topics import Topics


@dataclass(frozen=True, slots=True)
class TopicParts(RoomParts):
    """This proxy's copy of the registry, and the brokers' defaults."""

    settings: Settings
    topics: Topics
    topic_defaults: TopicDefaults
    classic_proof: ClassicProof | None
    """Serves classic topics while the store is away; None without a journal."""

    def background(self) -> Iterable[Work]:
        """Return the work that keeps the defaults fresh. The registry is followed by `RoutingParts`."""
        yield self.topic_defaults.follow()
        if self.classic_proof is not None:
            yield self.classic_proof.follow()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the interval at which the defaults are read."""
        self.topic_defaults.interval_s = self.settings.brokers.defaults_refresh_ms / 1000


def build_topics(process: ProcessParts, stores: StoreParts, brokers: BrokerParts, lease: FleetLease) -> TopicParts:
    """Build the parts; the registry is not read yet. `lease`: shared with `build_routing`."""
    settings = process.settings
    topics = Topics(
        stores.registry,
        lease_runs=lease.runs,
        lease_number=lambda: lease.number,
        names_max_age_s=settings.fleet.classic_names_max_age_ms / 1000,
        now=process.now,
    )
    proof = None
    if (from_journal := stores.registry_from_journal) is not None:
        proof = ClassicProof(
            topics,
            lease,
            lease_ms=settings.fleet.lease_ms,
            ask=brokers.cluster.service.ask,
            read_registry=from_journal.read,
            turns=process.turns,
        )
    return TopicParts(
        settings=settings,
        topics=topics,
        classic_proof=proof,
        topic_defaults=TopicDefaults(brokers.cluster, interval_s=settings.brokers.defaults_refresh_ms / 1000),
    )
