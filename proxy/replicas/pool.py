"""Connections of the proxy's own to replicas: pooled by broker, authenticated, bounded; one read at a time on each.

A long poll keeps its connection busy, so there are about as many connections as waiting clients. The last used one is
used first, so unneeded ones grow old and are closed. A broker that can't be connected to, or does not answer, is
shunned as a whole. Then a trial of the pool's own (`tend`) finds out when it is back, instead of clients' reads. The
first trial after a read without an answer comes at once: if the broker is well, only that read was slow, and its caller
shuns only these partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from proxy.brokers.service import SERVICE_CLIENT_ID
from proxy.brokers.upstream import BrokerUnreachable
from proxy.process import open_files
from proxy.process.memory import MemoryBudget
from proxy.protocol.api_keys import API_VERSIONS, FETCH
from proxy.replicas.answers import (
    CORRELATION_ID,
    AwaitedAnswer,
    ReadWatch,
    ReplicaAnswer,
    ReplicaUnavailable,
    TimeOver,
)
from proxy.replicas.broker_pool import BrokerPool, PooledConnection
from proxy.replicas.choice import LeaderReason
from proxy.replicas.shunned import Shunned
from proxy.telemetry.outage import Outage
from proxy.wire.cold import read_response
from proxy.wire.errors import ProtocolError
from proxy.wire.header import request_header, response_header_length
from proxy.wire.primitives import INT32, Buffer

if TYPE_CHECKING:
    from proxy.brokers.cluster import Cluster
    from proxy.config import FetchSettings

log = structlog.get_logger()

_MS_PER_S = 1000


class ReplicaConnections:
    """The pools of one proxy."""

    def __init__(
        self,
        cluster: Cluster,
        settings: FetchSettings,
        shunned: Shunned,
        memory: MemoryBudget,
        now: Callable[[], float],
        *,
        longest_read_s: float,
    ) -> None:
        """`memory` is for answers; `longest_read_s`: from an answer's first byte to its last; `now`: the loop's."""
        self._cluster = cluster
        self._settings = settings
        self._shunned = shunned
        self._memory = memory
        self._now = now
        self._longest_read_s = longest_read_s
        self._pools: dict[int, BrokerPool] = {}
        self._outage = Outage()
        self._doubted: set[int] = set()
        """To be tried before they are shunned."""
        self._trials: dict[int, asyncio.Task[None]] = {}
        """Trials that began at once, by broker."""

    def __len__(self) -> int:
        """Open connections, and those that are being made."""
        return sum(len(pool.open) for pool in self._pools.values())

    async def fetch(
        self, node_id: int, version: int, body: bytes, client_id: str | None, timeout_s: float
    ) -> ReplicaAnswer:
        """Send a Fetch of `version` (v11 or newer) to a broker as the proxy, under the client's ID; return the answer.

        `body` is the request's without its header. The answer has to begin within `timeout_s` (the request's max_wait
        and a grace), connecting included, and to keep coming then. The caller calls `release` on the result. On
        cancellation the connection is closed. Raises ReplicaUnavailable with the reason.
        """
        due_s = self._now() + timeout_s
        header = request_header(FETCH, version, CORRELATION_ID, client_id)
        request: list[Buffer] = [INT32.pack(len(header) + len(body)), header, body]
        pool = self._pool(node_id, version)
        if self._memory.contended:
            raise ReplicaUnavailable(LeaderReason.NO_MEMORY)
        connection = pool.take_idle()
        used_before = connection is not None
        if connection is None:
            connection = await self._connected(pool, node_id, due_s)
        elif connection.session_ends(self._now()):
            await self._authenticate_again(connection, due_s)
        try:
            return await self._read(pool, connection, version, request, due_s)
        except ConnectionError as error:
            if not used_before:
                raise self._doubt(node_id, error) from None
        # The broker may have closed it at that very moment, or may have been down since; a new connection will show.
        connection = await self._connected(pool, node_id, due_s)
        try:
            return await self._read(pool, connection, version, request, due_s)
        except ConnectionError as error:
            raise self._doubt(node_id, error) from None

    async def tend(self) -> None:
        """Close idle connections, and try failed brokers until they answer again, forever."""
        while True:
            await asyncio.sleep(min(self._settings.replica_shun_ms, self._settings.replica_idle_ms) / _MS_PER_S)
            live = self._cluster.view.brokers
            for node_id, pool in list(self._pools.items()):
                broker = live.get(node_id)
                pool.close_idle((broker.host, broker.port) if broker is not None else None)
                # Reads that wait for their turn to connect still put their connections into this pool.
                if not pool.open and broker is None and not pool.connecting.locked():
                    del self._pools[node_id]
            failed = self._shunned.brokers
            for node_id in failed - live.keys():
                self._shunned.forgive(node_id)  # without a word: it is not well
                self._outage.ends(node_id)
            doubted, self._doubted = self._doubted, set()
            trying = ((failed | doubted) & live.keys()) - self._trials.keys()
            await asyncio.gather(*(self._try(node_id) for node_id in trying))

    def close(self) -> None:
        """End all connections."""
        for trial in self._trials.values():
            trial.cancel()
        for pool in self._pools.values():
            for connection in list(pool.open):
                connection.close()

    def _pool(self, node_id: int, version: int) -> BrokerPool:
        broker = self._cluster.view.brokers.get(node_id)
        if broker is None:
            raise ReplicaUnavailable(LeaderReason.NOT_ALIVE)
        if node_id in self._shunned.brokers:
            raise ReplicaUnavailable(LeaderReason.UNREACHABLE)
        pool = self._pools.get(node_id)
        if pool is None:
            pool = self._pools[node_id] = BrokerPool(self._settings, self._now)
        pool.address = broker.host, broker.port
        if version > pool.highest_version:
            raise ReplicaUnavailable(LeaderReason.REPLICA_ERROR, f"broker {node_id} does not know Fetch v{version}")
        return pool

    async def _read(
        self,
        pool: BrokerPool,
        connection: PooledConnection,
        version: int,
        request: list[Buffer],
        due_s: float,
    ) -> ReplicaAnswer:
        """Read once on a connection that no other read uses. Raises ReplicaUnavailable, and ConnectionError."""
        awaited = AwaitedAnswer(self._memory, connection.broker.resume_reading)
        connection.broker.send(request, awaited)
        watch = ReadWatch(
            connection.broker,
            awaited,
            due_s=due_s,
            grace_s=self._settings.replica_grace_ms / _MS_PER_S,
            longest_s=self._longest_read_s,
        )
        try:
            frame = await awaited.answer
            at = response_header_length(FETCH, version, frame)
        except BaseException as error:
            short_of_memory = awaited.waits_for_memory
            awaited.give_up()
            connection.close()
            if isinstance(error, ProtocolError):
                raise ReplicaUnavailable(LeaderReason.REPLICA_ERROR, str(error)) from None
            if not isinstance(error, TimeOver):
                raise
            if short_of_memory:
                raise ReplicaUnavailable(LeaderReason.NO_MEMORY, "no memory for the answer") from None
            raise self._slow(connection.node_id) from None
        finally:
            watch.end()
        answer = ReplicaAnswer(frame[at:], self._memory, awaited.take())
        pool.put_back(connection, answer.throttle_ms / _MS_PER_S)
        return answer

    async def _connected(self, pool: BrokerPool, node_id: int, due_s: float) -> PooledConnection:
        """Return a new connection."""
        connecting = False
        try:
            async with asyncio.timeout_at(due_s), pool.connecting:
                if node_id in self._shunned.brokers:
                    raise ReplicaUnavailable(LeaderReason.UNREACHABLE)
                connection = pool.begin_connection(node_id)
                connecting = True
                await connection.connect(self._cluster)
                return connection
        except TimeoutError:
            if not connecting:
                raise ReplicaUnavailable(LeaderReason.NO_CONNECTION, "others are connecting") from None
            raise self._failed(node_id, LeaderReason.TIMED_OUT, "no connection in time") from None
        except BrokerUnreachable as error:
            if open_files.are_exhausted(error.__cause__):
                raise ReplicaUnavailable(LeaderReason.NO_CONNECTION, str(error)) from None
            raise self._failed(node_id, LeaderReason.UNREACHABLE, str(error)) from None

    async def _authenticate_again(self, connection: PooledConnection, due_s: float) -> None:
        try:
            async with asyncio.timeout_at(due_s):
                await connection.authenticate(self._cluster)
        except TimeoutError:
            raise self._failed(connection.node_id, LeaderReason.TIMED_OUT, "no authentication in time") from None
        except BrokerUnreachable as error:
            raise self._failed(connection.node_id, LeaderReason.UNREACHABLE, str(error)) from None

    def _slow(self, node_id: int) -> ReplicaUnavailable:
        """Shun a broker that did not answer a read, for the time of a trial: it may be that read alone."""
        if node_id not in self._trials and node_id not in self._shunned.brokers:
            self._shunned.shun_broker(node_id)
            self._trials[node_id] = trial = asyncio.get_running_loop().create_task(self._try(node_id, again=False))
            trial.add_done_callback(lambda _: self._trials.pop(node_id, None))
        return ReplicaUnavailable(LeaderReason.TIMED_OUT, "no answer in time", slow=True)

    def _doubt(self, node_id: int, error: ConnectionError) -> ReplicaUnavailable:
        """A broker that takes connections, and ends a new one over a read: that may be this one client's
        doing."""
        self._doubted.add(node_id)
        return ReplicaUnavailable(LeaderReason.UNREACHABLE, str(error))

    def _failed(self, node_id: int, reason: LeaderReason, text: str) -> ReplicaUnavailable:
        """Shun the broker until it answers again."""
        self._shunned.shun_broker(node_id)
        if self._outage.begins(node_id):
            log.warning(
                "replica_unavailable",
                broker=node_id,
                reason=text,
                effect="records that it would serve to clients of other brokers' listeners are read from the leaders",
                remedy="check the broker; it is retried automatically",
            )
        return ReplicaUnavailable(reason, text)

    def _forgive(self, node_id: int) -> None:
        self._shunned.forgive(node_id)
        if self._outage.ends(node_id):
            log.info("replica_forgiven", broker=node_id)

    async def _try(self, node_id: int, *, again: bool = True) -> None:
        """Whether a broker answers: a connection, and a question that costs nothing. `again`: it did not before."""
        pool = self._pools.setdefault(node_id, BrokerPool(self._settings, self._now))
        broker = self._cluster.view.brokers.get(node_id)
        if broker is None:
            return
        pool.address = broker.host, broker.port
        if again and node_id in self._shunned.brokers:
            pool.close_idle(None)  # whatever the broker hangs in, they may hang in it too
        try:
            async with asyncio.timeout(self._settings.replica_grace_ms / _MS_PER_S):
                connection = pool.begin_connection(node_id)
                await connection.connect(self._cluster)
                try:
                    answer = await connection.broker.ask(API_VERSIONS, 0, b"", SERVICE_CLIENT_ID)
                    pool.highest_version = _highest_fetch_version(read_response(API_VERSIONS, 0, answer))
                except BaseException:
                    connection.close()
                    raise
        except ReplicaUnavailable:
            return
        except (TimeoutError, BrokerUnreachable, ProtocolError) as error:
            if not open_files.are_exhausted(error.__cause__):
                self._failed(node_id, LeaderReason.UNREACHABLE, str(error) or "no answer in time")
            return
        pool.put_back(connection, 0.0)
        self._forgive(node_id)


def _highest_fetch_version(response: Any) -> int:
    """Return the highest version of Fetch in an ApiVersions response. Raises ProtocolError if it is missing."""
    for api in response.api_keys:
        if api.api_key == FETCH:
            return int(api.max_version)
    raise ProtocolError("the broker does not name Fetch among its APIs")
