"""The parts that know the live proxies and each client's rack, and choose leaders for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.store_parts import StoreParts
from proxy.assembly.topic_parts import TopicParts
from proxy.coordinator.fleet_lease import FleetLease
from proxy.routing.addresses import Addresses
from proxy.routing.fleet import Fleet
from proxy.routing.leaders import LeaderChoice
from proxy.routing.racks import Racks
from proxy.routing.recent_sums import RecentSums
from proxy.topics.topics import Topics

_RACKS = {"racks.client_id_keys", "racks.by_network"}


@dataclass(frozen=True, slots=True)
class RoutingParts(RoomParts):
    """The fleet, and the addresses that clients get."""

    topics: Topics
    fleet: Fleet
    racks: Racks
    addresses: Addresses
    recent_sums: RecentSums

    def background_on_store(self) -> Iterable[Work]:
        """Return the heartbeats, and the work that acknowledges each change of the registry with one."""
        yield self.fleet.keep_beating()
        yield self.topics.follow(self.fleet.beat)

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the hints and networks by which clients' racks are known."""
        if not _RACKS.isdisjoint(changed):
            self.racks.take_settings()


def build_routing(
    process: ProcessParts,
    stores: StoreParts,
    brokers: BrokerParts,
    topics: TopicParts,
    lease: FleetLease,
    *,
    has_clients: bool,
) -> RoutingParts:
    """Build the parts; no heartbeat is sent yet. `lease`: shared with `build_topics`."""
    settings, registry, cluster = process.settings, topics.topics, brokers.cluster
    recent_sums = RecentSums()
    fleet = Fleet(
        settings,
        stores.fleet_store,
        lease,
        registry_change=lambda: registry.obeyed,
        reload=registry.load,
        node_ids=brokers.broker_ports.node_ids,
        sums=recent_sums.now,
        has_clients=has_clients,
    )
    racks = Racks(settings, fleet=fleet, cluster=cluster, now=process.now)
    leader_choice = LeaderChoice(settings.leader_choice)
    return RoutingParts(
        topics=registry,
        fleet=fleet,
        racks=racks,
        addresses=Addresses(fleet=fleet, racks=racks, leader_choice=leader_choice, cluster=cluster),
        recent_sums=recent_sums,
    )
