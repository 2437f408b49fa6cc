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
from proxy.coordinator.clock import wall_clock_ms
from proxy.markers.catching_up import CatchingUp
from proxy.markers.follower import MarkerFollower
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.open_transactions import OpenTransactions
from proxy.markers.reader import MarkerReader
from proxy.markers.reconciling import Reconciler
from proxy.markers.stats import MarkerStats


@dataclass(frozen=True, slots=True)
class MarkerParts(RoomParts):
    """The parts that read and apply markers."""

    service: ServiceConnection
    """The connection on which leaders are asked for."""
    reader: MarkerReader
    catching_up: CatchingUp
    follower: MarkerFollower
    open_transactions: OpenTransactions
    reconciler: Reconciler
    stats: MarkerStats

    def background_on_store(self) -> Iterable[Work]:
        """Return the work that follows shadows, and looks at open transactions."""
        yield self.follower.follow()
        yield self.open_transactions.keep_looking()
        yield self.reconciler.keep_reconciling()

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
    stats = MarkerStats()
    reader = MarkerReader(transactions, leaders, stats, process.throttled_log, wall_clock_ms)
    follower = MarkerFollower(
        transactions,
        reader,
        leaders,
        connect,
        settings.transactions,
        shards=settings.redis.shards,
        identity=fleet.identity,
        live=lambda: {name: record.serving for name, record in fleet.records.items()},
        now=process.now,
    )
    diskless.reader.coordinates.on_open_transaction = follower.hint
    catching_up = CatchingUp(transactions, reader, leaders, connect, timeout_s=timeout_s)

    def store_time_ms() -> int:
        return stores.coordinator.store_time_ms() or wall_clock_ms()

    open_transactions = OpenTransactions(
        transactions, lambda: follower.own_shards, lambda: len(follower), store_time_ms
    )
    return MarkerParts(
        service=service,
        reader=reader,
        catching_up=catching_up,
        follower=follower,
        open_transactions=open_transactions,
        reconciler=Reconciler(
            transactions, open_transactions.look, catching_up.catch_up, leaders, cluster, stats, store_time_ms
        ),
        stats=stats,
    )
