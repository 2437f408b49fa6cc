"""Transactions of clients."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.marker_parts import MarkerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts
from proxy.assembly.store_parts import StoreParts
from proxy.brokers.service import ServiceConnection
from proxy.transactions.additions import Additions
from proxy.transactions.client_version import ClientVersion
from proxy.transactions.coordinators import TransactionCoordinators
from proxy.transactions.enlistments import Enlistments
from proxy.transactions.shadow_ends import ShadowEnds
from proxy.transactions.shadow_markers import ShadowMarkers


@dataclass(frozen=True, slots=True)
class TransactionParts(RoomParts):
    """The parts that open transactions in partitions, and write operators' markers."""

    ends: ShadowEnds
    enlistments: Enlistments
    additions: Additions
    client_version: ClientVersion
    markers: ShadowMarkers

    async def close(self) -> None:
        """Close the connections to brokers."""
        self.ends.close()
        self.additions.close()


def build_transactions(
    process: ProcessParts, stores: StoreParts, brokers: BrokerParts, markers: MarkerParts
) -> TransactionParts:
    """Build the parts; no broker is asked yet."""
    settings = process.settings.transactions
    timeout_s = settings.enlist_timeout_ms / 1000
    cluster, catch_up = brokers.cluster, markers.catching_up.catch_up

    def connect(node_id: int) -> ServiceConnection:
        return cluster.connection_to(node_id, timeout_s)

    ends = ShadowEnds(cluster, connect)
    return TransactionParts(
        ends=ends,
        enlistments=Enlistments(
            stores.coordinator.transactions,
            ends,
            catch_up,
            process.throttled_log,
            timeout_s=timeout_s,
        ),
        additions=Additions(
            TransactionCoordinators(cluster, connect), ends, catch_up, process.throttled_log, timeout_s=timeout_s
        ),
        client_version=ClientVersion(settings, cluster.service.ask, process.now),
        markers=ShadowMarkers(cluster, catch_up, process.throttled_log),
    )
