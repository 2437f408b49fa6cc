"""Transactions of clients."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.marker_parts import MarkerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts
from proxy.assembly.store_parts import StoreParts
from proxy.transactions.enlistments import Enlistments
from proxy.transactions.shadow_ends import ShadowEnds
from proxy.transactions.shadow_markers import ShadowMarkers


@dataclass(frozen=True, slots=True)
class TransactionParts(RoomParts):
    """The parts that enlist partitions in transactions, and write operators' markers."""

    ends: ShadowEnds
    enlistments: Enlistments
    markers: ShadowMarkers

    async def close(self) -> None:
        """Close the connections to brokers."""
        self.ends.close()


def build_transactions(
    process: ProcessParts, stores: StoreParts, brokers: BrokerParts, markers: MarkerParts
) -> TransactionParts:
    """Build the parts; no broker is asked yet."""
    timeout_s = process.settings.transactions.enlist_timeout_ms / 1000
    cluster, catch_up = brokers.cluster, markers.catching_up.catch_up
    ends = ShadowEnds(cluster, lambda node_id: cluster.connection_to(node_id, timeout_s))
    return TransactionParts(
        ends=ends,
        enlistments=Enlistments(
            stores.coordinator.transactions,
            ends,
            catch_up,
            process.throttled_log,
            timeout_s=timeout_s,
        ),
        markers=ShadowMarkers(cluster, catch_up, process.throttled_log),
    )
