"""Replicas of classic topics: where they are, which is near, and the connections to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.room import RoomParts, Work
from proxy.brokers.service import ServiceConnection
from proxy.config import Settings
from proxy.process.memory import MemoryBudget
from proxy.replicas.knowledge import Replicas
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import NearBrokers
from proxy.replicas.pool import ReplicaConnections
from proxy.replicas.selector import ReplicaSelector
from proxy.replicas.shunned import Shunned

_ANSWER_WITHIN_S = 3.0
"""A broker that has not reported leaders and replicas by then is asked after the others."""


@dataclass(frozen=True, slots=True)
class ReplicaParts(RoomParts):
    """All that reads from near replicas need."""

    settings: Settings
    near_brokers: NearBrokers
    shunned: Shunned
    replicas_service: ServiceConnection
    """The connection on which leaders and replicas are asked for."""
    replicas: Replicas
    log_ends: LogEnds
    replica_selector: ReplicaSelector
    replica_memory: MemoryBudget
    """Bytes of replicas' answers."""
    replica_connections: ReplicaConnections

    def background(self) -> Iterable[Work]:
        """Return the work that keeps leaders, replicas and log ends fresh, and tends the connections."""
        yield self.replica_selector.follow()
        yield self.replicas.follow()
        yield self.log_ends.follow()
        yield self.replica_connections.tend()

    async def close(self) -> None:
        """Close the connections to replicas."""
        self.replica_connections.close()
        self.replicas_service.close()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the intervals and limits."""
        brokers, fetch = self.settings.brokers, self.settings.fetch
        self.replica_memory.resize(fetch.replica_answer_bytes_max)
        self.shunned.shun_s = fetch.replica_shun_ms / 1000
        self.replicas.max_topics = fetch.replica_topics_remembered
        self.replicas.interval_s = brokers.metadata_refresh_ms / 1000
        self.log_ends.interval_s = fetch.replica_compare_interval_ms / 1000
        self.log_ends.max_partitions = fetch.replica_partitions_compared
        self.replica_selector.interval_s = brokers.defaults_refresh_ms / 1000


def build_replicas(process: ProcessParts, brokers: BrokerParts) -> ReplicaParts:
    """Build the parts; no broker is asked yet."""
    settings, fetch, cluster = process.settings, process.settings.fetch, brokers.cluster
    near_brokers = NearBrokers(settings.rack, cluster)
    shunned = Shunned(process.now, shun_s=fetch.replica_shun_ms / 1000)
    # Its own connection: what clients' Fetches wait for does not queue after other questions. A replica that is cut off
    # goes on reporting itself in sync, so near brokers are not asked first.
    replicas_service = cluster.connection_to_any(_ANSWER_WITHIN_S, near_first=False)
    replicas = Replicas(
        replicas_service.ask,
        process.now,
        interval_s=settings.brokers.metadata_refresh_ms / 1000,
        max_topics=fetch.replica_topics_remembered,
    )
    replica_memory = MemoryBudget(fetch.replica_answer_bytes_max)
    return ReplicaParts(
        settings=settings,
        near_brokers=near_brokers,
        shunned=shunned,
        replicas_service=replicas_service,
        replicas=replicas,
        log_ends=LogEnds(
            cluster.connection_to,
            replicas.peek,
            near_brokers,
            interval_s=fetch.replica_compare_interval_ms / 1000,
            max_partitions=fetch.replica_partitions_compared,
        ),
        replica_selector=ReplicaSelector(cluster, interval_s=settings.brokers.defaults_refresh_ms / 1000),
        replica_memory=replica_memory,
        replica_connections=ReplicaConnections(
            cluster,
            fetch,
            shunned,
            replica_memory,
            process.now,
            longest_read_s=settings.brokers.request_timeout_ms / 1000,
        ),
    )
