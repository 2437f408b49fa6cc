"""Connections of the journal to brokers: one for reads, and a few for appends, to each broker."""

from __future__ import annotations

from collections import defaultdict

from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.config.journal import Journal
from proxy.journal.messages import produce_version
from proxy.protocol.api_keys import API_VERSIONS

_MS_PER_S = 1000


class Connections:
    """All connections of one journal.

    A broker handles one request of a connection at a time, and an append waits there until the followers have the
    records. So reads have a connection of their own, and so has each append that is under way.
    """

    def __init__(self, cluster: Cluster, settings: Journal) -> None:
        self._cluster = cluster
        self._settings = settings
        self._append_timeout_s = settings.timeout_ms / _MS_PER_S
        self._read_timeout_s = settings.attempt_timeout_ms / _MS_PER_S
        self._reading: dict[int, ServiceConnection] = {}
        self._idle: defaultdict[int, list[ServiceConnection]] = defaultdict(list)
        self._lent: defaultdict[int, set[ServiceConnection]] = defaultdict(set)
        self._versions: dict[int, int] = {}
        self.to_any = cluster.connection_to_any(self._read_timeout_s)
        """A connection to any broker, for requests that every broker can answer."""

    def for_reads(self, node_id: int) -> ServiceConnection:
        """Return the connection for reads from a broker."""
        connection = self._reading.get(node_id)
        if connection is None:
            connection = self._reading[node_id] = self._cluster.connection_to(node_id, self._read_timeout_s)
        return connection

    def may_append(self, node_id: int) -> bool:
        """Return whether one more append to a broker may be under way."""
        return len(self._lent[node_id]) < self._settings.append_connections_max

    def take_for_append(self, node_id: int) -> ServiceConnection:
        """Return a connection that no append is using; it is made when it is first used. Call `put_back` with it."""
        idle = self._idle[node_id]
        connection = idle.pop() if idle else self._cluster.connection_to(node_id, self._append_timeout_s)
        self._lent[node_id].add(connection)
        return connection

    def put_back(self, node_id: int, connection: ServiceConnection) -> None:
        """Take back a connection for the next append."""
        self._lent[node_id].discard(connection)
        self._idle[node_id].append(connection)

    async def produce_version(self, node_id: int, connection: ServiceConnection) -> int:
        """Return the version of Produce for a broker. Raises BrokerUnreachable and ProtocolError."""
        version = self._versions.get(node_id)
        if version is None:
            version = produce_version(await connection.ask(API_VERSIONS, 0, b""))
            self._versions[node_id] = version
        return version

    def forget_version(self, node_id: int) -> None:
        """Request the broker's versions before the next append: another release may have been started."""
        self._versions.pop(node_id, None)

    def keep_only(self, live: frozenset[int]) -> None:
        """Close the connections to brokers that are gone; appends under way go on."""
        for node_id in self._reading.keys() - live:
            self._reading.pop(node_id).close()
        for node_id in self._idle.keys() - live:
            for connection in self._idle.pop(node_id):
                connection.close()

    def close(self) -> None:
        """Close all connections; what is under way on them fails."""
        self.to_any.close()
        for connection in self._reading.values():
            connection.close()
        for connections in (*self._idle.values(), *self._lent.values()):
            for connection in connections:
                connection.close()
