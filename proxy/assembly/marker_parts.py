"""The markers of transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.diskless_parts import DisklessParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.routing_parts import RoutingParts
from proxy.assembly.store_parts import StoreParts
from proxy.brokers.service import ServiceConnection
from proxy.markers.catching_up import CatchingUp
from proxy.markers.follower import MarkerFollower
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.reader import MarkerReader


@dataclass(frozen=True, slots=True)
class MarkerParts(RoomParts):
    """The parts that read and apply markers."""

    service: ServiceConnection
    """The connection on which leaders are asked for."""
    reader: MarkerReader
    catching_up: CatchingUp
    follower: MarkerFollower

    def background(self) -> Iterable[Work]:
        """Return the work that follows shadows."""
        yield self.follower.follow()

    async def close(self) -> None:
        """Close the connections to brokers."""
        self.catching_up.close()
        self.service.close()


def build_markers(
    process: ProcessParts, stores: StoreParts, brokers: BrokerParts, diskless: DisklessParts, routing: RoutingParts
) -> MarkerParts:
    """Build the parts; no broker is asked yet."""
    settings = process.settings
    timeout_s = settings.transactions.catch_up_timeout_ms / 1000
    transactions, cluster, fleet = stores.coordinator.transactions, brokers.cluster, routing.fleet

    def connect(node_id: int) -> ServiceConnection:
        return cluster.connection_to(node_id, timeout_s)

    service = cluster.connection_to_any(timeout_s)
    leaders = ShadowLeaders(service.ask)
    reader = MarkerReader(transactions, leaders, process.throttled_log)
    follower = MarkerFollower(
        transactions,
        reader,
        leaders,
        connect,
        settings.transactions,
        shards=settings.redis.shards,
        identity=fleet.identity,
        live=lambda: {name: record.serving for name, record in fleet.records.items()},
    )
    diskless.reader.coordinates.on_open_transaction = follower.hint
    return MarkerParts(
        service=service,
        reader=reader,
        catching_up=CatchingUp(transactions, reader, leaders, connect, timeout_s=timeout_s),
        follower=follower,
    )
