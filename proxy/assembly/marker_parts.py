"""The markers of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts
from proxy.assembly.store_parts import StoreParts
from proxy.brokers.service import ServiceConnection
from proxy.markers.catching_up import CatchingUp
from proxy.markers.leaders import ShadowLeaders
from proxy.markers.reader import MarkerReader


@dataclass(frozen=True, slots=True)
class MarkerParts(RoomParts):
    """The parts that read and apply markers."""

    service: ServiceConnection
    """The connection on which leaders are asked for."""
    reader: MarkerReader
    catching_up: CatchingUp

    async def close(self) -> None:
        """Close the connections to brokers."""
        self.catching_up.close()
        self.service.close()


def build_markers(process: ProcessParts, stores: StoreParts, brokers: BrokerParts) -> MarkerParts:
    """Build the parts; no broker is asked yet."""
    timeout_s = process.settings.transactions.catch_up_timeout_ms / 1000
    transactions, cluster = stores.coordinator.transactions, brokers.cluster
    service = cluster.connection_to_any(timeout_s)
    leaders = ShadowLeaders(service.ask)
    reader = MarkerReader(transactions, leaders, process.throttled_log)
    return MarkerParts(
        service=service,
        reader=reader,
        catching_up=CatchingUp(
            transactions,
            reader,
            leaders,
            lambda node_id: cluster.connection_to(node_id, timeout_s),
            timeout_s=timeout_s,
        ),
    )
