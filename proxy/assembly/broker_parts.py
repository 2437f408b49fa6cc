"""The Kafka cluster, and the ports that stand for its brokers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.brokers.cluster import Cluster
from proxy.process.broker_ports import BrokerPorts


@dataclass(frozen=True, slots=True)
class BrokerParts(RoomParts):
    """The brokers as this proxy knows them."""

    broker_ports: BrokerPorts
    cluster: Cluster

    def background(self) -> Iterable[Work]:
        """Return the work that keeps the view of the cluster fresh."""
        yield self.cluster.keep_fresh()

    async def close(self) -> None:
        """Close the service connection."""
        self.cluster.service.close()


def build_brokers(process: ProcessParts) -> BrokerParts:
    """Build the parts; no broker is asked yet."""
    broker_ports = BrokerPorts(process.settings)
    return BrokerParts(broker_ports=broker_ports, cluster=Cluster(process.settings, broker_ports.take_brokers))
