"""Addresses of brokers and leaders of diskless partitions, as each client gets them."""

from __future__ import annotations

from proxy.brokers.cluster import Cluster
from proxy.client.session import Session
from proxy.routing.fleet import Fleet
from proxy.routing.leaders import LeaderChoice
from proxy.routing.racks import Racks, client_key
from proxy.wire.metadata import AddressOf
from proxy.wire.partition_leaders import Leaders


class Addresses:
    """The addresses that clients get."""

    def __init__(self, *, fleet: Fleet, racks: Racks, leader_choice: LeaderChoice, cluster: Cluster) -> None:
        self._fleet = fleet
        self._racks = racks
        self._leader_choice = leader_choice
        self._cluster = cluster

    def of(self, session: Session, client_id: str | None, rack: str | None = None) -> AddressOf:
        """Return what a client gets as the address of each broker; None for a broker that no listener stands for.

        `rack` is the one that the request itself names.
        """
        listener, listeners = self._fleet.listener, session.listeners
        rack = rack or self._racks.of(session, client_id)
        key = client_key(session.host, client_id)
        return lambda node_id: listener(node_id, rack, key, listeners)

    def diskless_leaders(
        self, session: Session, client_id: str | None, rack: str | None = None, *, metadata: bool
    ) -> Leaders | None:
        """Return who leads diskless partitions for this client (`LeaderChoice.leaders`); None if no broker lives."""
        view = self._cluster.view.with_address(self.of(session, client_id, rack))
        live = tuple(sorted(view.brokers))
        rack = rack or self._racks.of(session, client_id)
        in_rack = tuple(node for node in live if view.brokers[node].rack == rack)
        racks = tuple(view.brokers[node].rack for node in live)
        key = client_key(session.host, client_id)
        return self._leader_choice.leaders(key, live, in_rack, metadata=metadata, racks=racks)
