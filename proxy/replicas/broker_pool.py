"""The pool's connections to one broker: idle, resting, under way; and one of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.brokers.upstream import BrokerConnection
from proxy.replicas.answers import ReplicaUnavailable
from proxy.replicas.choice import LeaderReason
from proxy.replicas.receiver import receive_in_place

if TYPE_CHECKING:
    from proxy.brokers.cluster import Cluster
    from proxy.config import FetchSettings

_CONNECTS_AT_A_TIME = 8
"""To one broker: a handshake of TLS and SASL costs it something."""
_MS_PER_S = 1000

Address = tuple[str, int]


class PooledConnection:
    """A connection of the pool, with what is needed to use it again."""

    def __init__(self, node_id: int, address: Address, ended: Callable[[PooledConnection], None]) -> None:
        """Call `ended` when the connection has ended, perhaps twice."""
        self.node_id = node_id
        self.address = address
        self.used_s = 0.0
        self.rests_until_s = 0.0
        self.closed = False
        self._ended = ended
        self._session_ends_s: float | None = None
        self.broker = BrokerConnection(max_frame_bytes=2**31 - 1, on_lost=lambda: ended(self))

    async def connect(self, cluster: Cluster) -> None:
        """Connect and authenticate as the proxy. Raises BrokerUnreachable; failed or cancelled, it has ended."""
        try:
            self._session_ends_s = await cluster.access.connect_as_service(*self.address, self.broker)
            receive_in_place(self.broker)
        except BaseException:
            self.close()
            raise

    async def authenticate(self, cluster: Cluster) -> None:
        """Authenticate again (KIP-368). Raises BrokerUnreachable; failed or cancelled, it has ended."""
        try:
            self._session_ends_s = await cluster.access.authenticate(self.broker)
        except BaseException:
            self.close()
            raise

    def session_ends(self, now_s: float) -> bool:
        """Return whether the proxy has to authenticate again before it asks for anything."""
        return self._session_ends_s is not None and now_s >= self._session_ends_s

    def close(self) -> None:
        """End the connection; a request under way is lost."""
        self.closed = True
        self.broker.close()
        self._ended(self)


class BrokerPool:
    """Connections to one broker. `now` returns monotonic seconds."""

    def __init__(self, settings: FetchSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self.address: Address = ("", 0)
        """Present address of the broker; connections to earlier addresses are not used again."""
        self.highest_version = 2**15 - 1
        """Highest version of Fetch that the broker knows, once it has been asked."""
        self.open: set[PooledConnection] = set()
        """All connections, including those that are being made."""
        self.connecting = asyncio.Semaphore(_CONNECTS_AT_A_TIME)
        self._idle: deque[PooledConnection] = deque()
        """The one that was used last at the end."""
        self._resting: list[PooledConnection] = []
        """Connections that the broker has throttled, until their throttle time ends."""

    def take_idle(self) -> PooledConnection | None:
        """Return the last used of the usable connections; None if there is none."""
        if self._resting:
            self._wake()
        while self._idle:
            connection = self._idle.pop()
            if connection.broker.lost or connection.closed:
                continue
            if connection.address == self.address:
                return connection
            connection.close()
        return None

    def put_back(self, connection: PooledConnection, rest_s: float) -> None:
        """A connection on which nothing is under way; to be used again when `rest_s` have passed."""
        connection.used_s = self._now()
        if rest_s > 0:
            connection.rests_until_s = connection.used_s + rest_s
            self._resting.append(connection)
        else:
            self._idle.append(connection)

    def begin_connection(self, node_id: int) -> PooledConnection:
        """Return a connection that counts and is not made yet. Raises ReplicaUnavailable if there are too many."""
        if len(self.open) >= self._settings.replica_connections_max:
            raise ReplicaUnavailable(LeaderReason.THROTTLED if self._resting else LeaderReason.NO_CONNECTION)
        connection = PooledConnection(node_id, self.address, self.open.discard)
        self.open.add(connection)
        return connection

    def close_idle(self, address: Address | None) -> None:
        """Close connections that are long unused, or lead to another address; all idle ones if it is None."""
        self._wake()
        oldest_s = self._now() - self._settings.replica_idle_ms / _MS_PER_S
        for connection in [*self._idle, *self._resting]:
            if address is None or connection.address != address or connection.used_s < oldest_s:
                connection.close()
        self._idle = deque(one for one in self._idle if not one.broker.lost and not one.closed)
        self._resting = [one for one in self._resting if not one.broker.lost and not one.closed]

    def _wake(self) -> None:
        """Let those rest no longer whose time is over."""
        now_s = self._now()
        rested = [connection for connection in self._resting if connection.rests_until_s <= now_s]
        if rested:
            self._resting = [connection for connection in self._resting if connection.rests_until_s > now_s]
            # Behind those that were used since: they are the first to grow old.
            self._idle.extendleft(rested)
