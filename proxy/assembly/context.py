"""All parts under one name each, for handlers that do not get theirs by constructor yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from proxy.assembly.parts import Parts
from proxy.process.clock import wall_clock_ms

if TYPE_CHECKING:
    from proxy.handlers import Handler


class Context:
    """A façade over the parts of one process."""

    def __init__(self, parts: Parts, handlers: Mapping[int, Handler]) -> None:
        self.handlers = handlers
        self.settings = parts.process.settings
        self.now = parts.process.now
        self.wall_clock_ms = wall_clock_ms
        self.throttled_log = parts.process.throttled_log
        self.stats = parts.process.stats
        self.memory = parts.process.memory
        self.turns = parts.process.turns
        self.coordinator = parts.stores.coordinator
        self.cluster = parts.brokers.cluster
        self.index_watch = parts.diskless.index_watch
        self.rows = parts.diskless.rows
        self.reader = parts.diskless.reader
        self.time_lookup = parts.diskless.time_lookup
        self.wal = parts.diskless.wal
        self.intake = parts.diskless.intake
        self.topics = parts.topics.topics
        self.topic_defaults = parts.topics.topic_defaults
        self.fleet = parts.routing.fleet
        self.racks = parts.routing.racks
        self.near_brokers = parts.replicas.near_brokers
        self.shunned = parts.replicas.shunned
        self.replicas = parts.replicas.replicas
        self.log_ends = parts.replicas.log_ends
        self.replica_selector = parts.replicas.replica_selector
        self.replica_memory = parts.replicas.replica_memory
        self.replica_connections = parts.replicas.replica_connections
        self.reservations = parts.creation.reservations
        self.auto_creation = parts.creation.auto_creation
        self.under_replicated = parts.creation.under_replicated
        self.housekeeper = parts.housekeeping.housekeeper
        self.connections = parts.clients.connections
        self.unread = parts.clients.unread
        self.quotas = parts.clients.quotas
