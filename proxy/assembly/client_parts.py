"""Connections of clients: how many there are, what they have not read, and their quotas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from proxy.assembly.broker_parts import BrokerParts
from proxy.assembly.process_parts import ProcessParts
from proxy.assembly.replica_parts import ReplicaParts
from proxy.assembly.room import RoomParts, Work
from proxy.assembly.topic_parts import TopicParts
from proxy.brokers.cluster import Cluster
from proxy.config import Settings
from proxy.connection.connections import Connections
from proxy.connection.shared import Shared
from proxy.connection.unread import UnreadAnswers
from proxy.process import open_files
from proxy.process.memory import MemoryBudget
from proxy.process.poll_window import poll_window
from proxy.quotas.quotas import Quotas
from proxy.security.tls import TlsFiles, keep_fresh
from proxy.topics.topics import Topics

_DESCRIPTORS = {"limits.max_connections", "fetch.read_near_replicas"}


@dataclass(frozen=True, slots=True)
class ClientParts(RoomParts):
    """The parts that the connections of all clients share."""

    settings: Settings
    memory: MemoryBudget
    cluster: Cluster
    topics: Topics
    connections: Connections
    unread: UnreadAnswers
    shared: Shared
    quotas: Quotas
    certificates: Sequence[TlsFiles]
    """Certificates that the process shows to clients and brokers."""

    def background(self) -> Iterable[Work]:
        """Return the work that keeps quotas and certificates fresh, and ends idle connections."""
        settings = self.settings
        yield self.quotas.keep_fresh(
            self.cluster.service.ask,
            lambda: settings.fetch.read_near_replicas or bool(self.topics.all()),
            settings.brokers.quotas_refresh_ms / 1000,
        )
        yield self.connections.sweep(self.memory)
        yield keep_fresh(
            self.certificates,
            settings.certificate_reload_interval_ms / 1000,
            timedelta(days=settings.certificate_warning_days),
        )

    async def close(self) -> None:
        """End the connections that are left."""
        self.connections.abort()

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the limit of connections, which depends on the file descriptors that each takes."""
        if not _DESCRIPTORS.isdisjoint(changed):
            self.limit_connections()

    def limit_connections(self) -> None:
        """Allow as many connections as settings and file descriptors do. Before that it is the setting alone."""
        self.connections.max_connections = open_files.max_connections(self.settings)


def build_clients(
    process: ProcessParts,
    brokers: BrokerParts,
    topics: TopicParts,
    replicas: ReplicaParts,
    listener_tls: Iterable[TlsFiles],
) -> ClientParts:
    """Build the parts. `listener_tls`: certificates of the listeners."""
    settings, access = process.settings, brokers.cluster.access
    connections = Connections(settings.limits, process.stats)
    unread = UnreadAnswers(process.memory, settings.limits, connections.end_slowest)
    registry, is_foreign = topics.topics, replicas.near_brokers.is_foreign
    return ClientParts(
        settings=settings,
        memory=process.memory,
        cluster=brokers.cluster,
        topics=registry,
        connections=connections,
        unread=unread,
        shared=Shared(
            settings=settings,
            now=process.now,
            stats=process.stats,
            throttled_log=process.throttled_log,
            memory=process.memory,
            turns=process.turns,
            cluster=brokers.cluster,
            connections=connections,
            unread=unread,
            any_broker_serves=lambda: bool(registry.all()),
            reads_near=lambda node_id: settings.fetch.read_near_replicas and is_foreign(node_id),
            poll_window=poll_window(settings.limits.poll_window_us),
        ),
        quotas=Quotas(process.now, process.stats.throttled_seconds),
        certificates=(*listener_tls, *([access.tls] if access.tls else [])),
    )
