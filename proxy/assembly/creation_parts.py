"""Topics that are created: reserved names, topics on demand, and topics that lack replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.diskless_parts import DisklessParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.routing_parts import RoutingParts
from proxy.assembly.store_parts import StoreParts
from proxy.assembly.topic_parts import TopicParts
from proxy.config import Settings
from proxy.coordinator.clock import wall_clock_ms
from proxy.creation.auto_creation import AutoCreation
from proxy.creation.creator import TopicCreator
from proxy.creation.on_demand import OnDemand
from proxy.creation.replication.completion import Completion
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.growth import PartitionGrowth
from proxy.creation.replication.keeper import ReplicationKeeper
from proxy.creation.replication.store import RedisPendingTopics
from proxy.creation.reservations import Reservations


@dataclass(frozen=True, slots=True)
class CreationParts(RoomParts):
    """The parts that create topics, and complete topics that were created while brokers were missing."""

    settings: Settings
    reservations: Reservations
    under_replicated: UnderReplicatedTopics
    topic_creator: TopicCreator
    auto_creation: AutoCreation
    partition_growth: PartitionGrowth
    completion: Completion
    replication_keeper: ReplicationKeeper

    def background_on_store(self) -> Iterable[Work]:
        """Return the work that settles reservations, and that adds the replicas that topics lack."""
        yield self.reservations.keep_settling()
        yield self.replication_keeper.keep_completing()
        yield self.under_replicated.unmade.keep_forgetting()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply how often, and how many at once, lacking replicas are added."""
        self.completion.partitions_at_once = self.settings.replication.partitions_at_once
        self.replication_keeper.interval_s = self.settings.replication.check_interval_ms / 1000


def build_creation(
    process: ProcessParts,
    stores: StoreParts,
    brokers: BrokerParts,
    diskless: DisklessParts,
    topics: TopicParts,
    routing: RoutingParts,
) -> CreationParts:
    """Build the parts; nothing is created yet."""
    settings, cluster, fleet, registry = process.settings, brokers.cluster, routing.fleet, topics.topics
    pending_topics = RedisPendingTopics(stores.store, lambda: cluster.cluster_id)
    completion = Completion(
        cluster,
        pending_topics,
        owners=lambda: fleet.records.keys(),
        now_ms=wall_clock_ms,
        confirm_s=settings.brokers.deleted_topics_confirm_ms / 1000,
        settle_s=(settings.fleet.lease_ms + settings.fleet.create_topic_timeout_ms) / 1000,
        partitions_at_once=settings.replication.partitions_at_once,
    )
    reservations = Reservations(
        settings.fleet,
        topics=registry,
        coordinator=stores.coordinator,
        coordinates=diskless.reader.coordinates,
        fleet=fleet,
        cluster=cluster,
        now=process.now,
    )
    under_replicated = UnderReplicatedTopics(settings, pending_topics, cluster, fleet.identity, wall_clock_ms)
    topic_creator = TopicCreator(
        settings,
        topics=registry,
        fleet=fleet,
        reservations=reservations,
        under_replicated=under_replicated,
        unfinished=process.unfinished,
        now=process.now,
    )
    return CreationParts(
        settings=settings,
        reservations=reservations,
        under_replicated=under_replicated,
        topic_creator=topic_creator,
        auto_creation=AutoCreation(
            settings,
            topics=registry,
            topic_defaults=topics.topic_defaults,
            cluster=cluster,
            under_replicated=under_replicated,
            creator=topic_creator,
            on_demand=OnDemand(process.now),
            turns=process.turns,
        ),
        partition_growth=PartitionGrowth(under_replicated, pending_topics, cluster, registry),
        completion=completion,
        replication_keeper=ReplicationKeeper(
            completion,
            stores.fleet_store,
            fleet.identity,
            cluster,
            interval_s=settings.replication.check_interval_ms / 1000,
        ),
    )
