"""Connections to replicas are reused, bounded, given up, parked and retried; their memory is always returned."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog

from proxy.brokers.cluster import Cluster, ClusterView
from proxy.brokers.service import BrokerAccess
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.config import FetchSettings, Settings
from proxy.process.memory import MemoryBudget
from proxy.replicas.answers import ReplicaAnswer, ReplicaUnavailable
from proxy.replicas.choice import LeaderReason
from proxy.replicas.pool import ReplicaConnections
from proxy.replicas.shunned import Shunned
from proxy.wire.metadata import Broker
from tests.unit.replicas.fetch_server import CLOSE, FetchServer, fetch_server, fetched

NODE = 7
LONG_S = 30.0
SOON_S = 0.05


class Pooled:
    """The connections of a proxy to one broker."""

    def __init__(self, server: FetchServer, memory_bytes: int, **settings: Any) -> None:
        base: dict[str, Any] = {
            "brokers": {"bootstrap": ["127.0.0.1:1"]},
            "redis": {"url": "redis://unused"},
            "storage": {"url": "file:///unused"},
        }
        self.settings = Settings(rack="rack-a", **base)
        self.cluster = Cluster(self.settings)
        self.listens_at(server.port)
        self.ahead_s = 0.0
        """Seconds by which the clock was advanced without waiting."""
        clock = asyncio.get_running_loop().time

        def now() -> float:
            return clock() + self.ahead_s

        self.shunned = Shunned(now, shun_s=60)
        self.memory = MemoryBudget(memory_bytes)
        quick = {"replica_shun_ms": 10, "replica_grace_ms": 50} | settings
        self.connections = ReplicaConnections(
            self.cluster, FetchSettings(**quick), self.shunned, self.memory, now, longest_read_s=LONG_S
        )

    def listens_at(self, port: int) -> None:
        self.cluster.view = ClusterView({NODE: Broker(NODE, "127.0.0.1", port, "rack-a")})

    async def fetch(self, timeout_s: float = LONG_S, version: int = 12, client_id: str | None = "me") -> ReplicaAnswer:
        return await self.connections.fetch(NODE, version, b"body", client_id, timeout_s)

    async def read(self, **options: Any) -> bytes:
        """Return the answer as bytes; its memory is returned."""
        answer = await self.fetch(**options)
        body = bytes(answer.body)
        answer.release()
        return body

    async def refused(self, **options: Any) -> LeaderReason:
        with pytest.raises(ReplicaUnavailable) as refused:
            await self.fetch(**options)
        return refused.value.reason


@asynccontextmanager
async def pooled(memory_bytes: int = 1 << 20, **settings: Any) -> AsyncIterator[tuple[Pooled, FetchServer]]:
    async with fetch_server() as server:
        pool = Pooled(server, memory_bytes, **settings)
        tending = asyncio.create_task(pool.connections.tend())
        try:
            yield pool, server
        finally:
            tending.cancel()
            with suppress(asyncio.CancelledError):
                await tending
            pool.connections.close()
        await until(lambda: pool.memory.used_bytes == 0)
        assert len(pool.connections) == 0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.001)


async def test_a_read_is_asked_under_the_clients_id_and_a_connection_is_used_again() -> None:
    async with pooled() as (pool, server):
        for version, client_id in ((11, "one"), (12, None), (17, "three")):
            assert await pool.read(version=version, client_id=client_id) == fetched()
        assert [(header.api_version, header.client_id) for header in server.fetches] == [
            (11, "one"),
            (12, None),
            (17, "three"),
        ]
        assert len(server.connections) == len(pool.connections) == 1


async def test_the_connection_that_was_used_last_is_used_first_and_the_others_grow_old() -> None:
    async with pooled(replica_idle_ms=60_000) as (pool, server):
        server.answering.clear()
        waiting = [asyncio.create_task(pool.read()) for _ in range(3)]
        await until(lambda: len(server.fetches) == 3)
        server.answering.set()
        await asyncio.gather(*waiting)
        assert len(pool.connections) == 3
        pool.ahead_s = 40
        await pool.read()
        pool.ahead_s = 80
        await until(lambda: len(pool.connections) == 1)
        await pool.read()
        assert len(server.connections) == 3
        pool.ahead_s = 160
        await until(lambda: len(pool.connections) == 0)
        assert await pool.read() == fetched()


async def test_there_are_no_more_connections_than_allowed() -> None:
    async with pooled(replica_connections_max=2) as (pool, server):
        server.answering.clear()
        waiting = [asyncio.create_task(pool.read()) for _ in range(2)]
        await until(lambda: len(server.fetches) == 2)
        assert await pool.refused() is LeaderReason.NO_CONNECTION
        assert not pool.shunned.brokers
        server.answering.set()
        await asyncio.gather(*waiting)
        assert await pool.read() == fetched()


async def test_a_client_id_that_can_not_be_sent_takes_no_connection() -> None:
    async with pooled() as (pool, server):
        for _ in range(2):
            with pytest.raises(ValueError, match="does not fit"):
                await pool.fetch(client_id="\ufffd" * 12_000)
            assert await pool.read() == fetched()
        assert len(server.connections) == len(pool.connections) == 1


async def test_a_cancelled_read_ends_its_connection() -> None:
    async with pooled() as (pool, server):
        server.answering.clear()
        reading = asyncio.create_task(pool.read())
        await until(lambda: server.fetches)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert len(pool.connections) == 0
        server.answering.set()
        await until(lambda: server.open == 0)
        assert await pool.read() == fetched()
        assert len(server.connections) == 2


async def test_a_broker_that_does_not_answer_is_shunned_until_it_does() -> None:
    async with pooled() as (pool, server):
        await pool.read()
        server.answering.clear()
        with structlog.testing.capture_logs() as logged:
            assert await pool.refused(timeout_s=SOON_S) is LeaderReason.TIMED_OUT
            assert pool.shunned.brokers == {NODE}
            fetches = len(server.fetches)
            assert await pool.refused() is LeaderReason.UNREACHABLE
            await until(lambda: len(server.asked) >= fetches + 3)  # trials, not clients' reads
            assert len(server.fetches) == fetches
            assert pool.shunned.brokers == {NODE}
            server.answering.set()
            await until(lambda: not pool.shunned.brokers)
        assert [line["event"] for line in logged] == ["replica_unavailable", "replica_forgiven"]
        assert await pool.read() == fetched()


async def test_one_slow_read_hardly_delays_other_clients_of_a_broker() -> None:
    """The broker is well: it is tried at once, not when trials of brokers that failed are due."""
    async with pooled(replica_shun_ms=60_000, replica_idle_ms=60_000) as (pool, server):
        await pool.read()
        server.reading.clear()
        with structlog.testing.capture_logs() as logged, pytest.raises(ReplicaUnavailable) as slow:
            await pool.fetch(timeout_s=SOON_S)
        assert (slow.value.reason, slow.value.slow) == (LeaderReason.TIMED_OUT, True)
        assert pool.shunned.brokers == {NODE}, "until it has answered"
        await until(lambda: not pool.shunned.brokers)
        server.reading.set()
        assert await pool.read() == fetched()
        assert not logged


async def test_a_broker_that_is_not_there_is_shunned_and_costs_one_attempt() -> None:
    async with pooled() as (pool, server):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            pool.listens_at(nobody.getsockname()[1])
            assert await pool.refused() is LeaderReason.UNREACHABLE
            assert pool.shunned.brokers == {NODE}
        pool.listens_at(server.port)
        await until(lambda: not pool.shunned.brokers)
        assert await pool.read() == fetched()


async def test_a_broker_that_accepts_and_closes_every_connection_is_shunned() -> None:
    async with pooled() as (pool, server):
        server.answer, server.closing_all = CLOSE, True
        assert await pool.refused() is LeaderReason.UNREACHABLE
        await until(lambda: pool.shunned.brokers == {NODE})
        server.answer, server.closing_all = fetched(), False
        await until(lambda: not pool.shunned.brokers)
        assert await pool.read() == fetched()


async def test_a_broker_that_has_left_the_cluster_is_skipped_and_returns_as_a_new_one() -> None:
    async with pooled() as (pool, server):
        await pool.read()
        pool.shunned.shun_broker(NODE)
        view, pool.cluster.view = pool.cluster.view, ClusterView({})
        assert await pool.refused() is LeaderReason.NOT_ALIVE
        await until(lambda: not pool.shunned.brokers and len(pool.connections) == 0)
        pool.cluster.view = view
        assert await pool.read() == fetched()
        assert len(server.connections) >= 2


async def test_no_connection_is_forgotten_whose_broker_left_while_it_waited_to_be_made() -> None:
    async with pooled() as (pool, server):
        connecting = pool.connections._pool(NODE, 12).connecting
        while not connecting.locked():
            await connecting.acquire()  # as many as may connect at a time
        read = asyncio.create_task(pool.read())
        await asyncio.sleep(0)
        view, pool.cluster.view = pool.cluster.view, ClusterView({})
        await asyncio.sleep(0.05)  # some rounds of `tend`
        connecting.release()
        assert await read == fetched()
        pool.cluster.view = view
        await pool.read()
        assert len(server.connections) == len(pool.connections) == 1
    await until(lambda: server.open == 0)


async def test_the_end_of_shunning_a_dead_broker_is_not_logged() -> None:
    async with pooled() as (pool, _):
        with structlog.testing.capture_logs() as logged, socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            pool.listens_at(nobody.getsockname()[1])
            assert await pool.refused() is LeaderReason.UNREACHABLE
            pool.cluster.view = ClusterView({})
            await until(lambda: not pool.shunned.brokers)
        assert [line["event"] for line in logged] == ["replica_unavailable"]


async def test_connections_to_a_former_address_are_not_used_again() -> None:
    async with pooled() as (pool, server), fetch_server() as moved:
        await pool.read()
        pool.listens_at(moved.port)
        assert await pool.read() == fetched()
        assert (len(server.fetches), len(moved.fetches)) == (1, 1)
        await until(lambda: server.open == 0)
        assert len(pool.connections) == 1


async def test_a_connection_that_the_broker_closes_meanwhile_is_replaced_without_shunning() -> None:
    async with pooled() as (pool, server):
        await pool.read()
        server.closing = 1
        assert await pool.read() == fetched()
        assert len(server.fetches) == 3
        assert not pool.shunned.brokers


async def test_a_broker_that_closes_new_connections_over_a_read_is_asked_what_it_knows_and_not_shunned() -> None:
    """Else one client's unreadable request would be the end of all others' near reads."""
    async with pooled() as (pool, server):
        server.answer, server.highest_fetch = CLOSE, 12
        version = pool.shunned.version
        assert await pool.refused(version=17) is LeaderReason.UNREACHABLE
        await until(lambda: pool.connections._pools[NODE].highest_version == server.highest_fetch)
        assert (len(server.asked), len(pool.connections)) == (2, 1)
        assert pool.shunned.version == version
        server.answer = fetched()
        assert await pool.refused(version=17) is LeaderReason.REPLICA_ERROR
        assert await pool.read(version=12) == fetched()


async def test_a_throttled_connection_rests() -> None:
    async with pooled(replica_connections_max=2) as (pool, server):
        server.answer = fetched(throttle_ms=50_000)
        (await pool.fetch()).release()
        answer = await pool.fetch()
        assert answer.throttle_ms == 50_000
        answer.release()
        assert len(server.connections) == 2
        assert await pool.refused() is LeaderReason.THROTTLED
        server.answer = fetched()
        pool.ahead_s = 51
        assert await pool.read() == fetched()
        assert len(server.connections) == 2


async def test_an_answer_waits_for_memory_and_is_charged_until_it_is_released() -> None:
    async with pooled(memory_bytes=1000) as (pool, server):
        server.answer = fetched(records=bytes(700))
        first = await pool.fetch()
        assert pool.memory.used_bytes > 700
        second = asyncio.create_task(pool.fetch())
        await until(lambda: pool.memory.contended)
        first.release()
        answer = await second
        assert len(answer.body) == 704
        answer.release()
        assert pool.memory.used_bytes == 0


async def test_a_read_without_memory_in_time_goes_elsewhere_and_shuns_no_broker() -> None:
    async with pooled(memory_bytes=1000) as (pool, server):
        server.answer = fetched(records=bytes(700))
        first = await pool.fetch()
        assert await pool.refused(timeout_s=1.0) is LeaderReason.NO_MEMORY
        assert not pool.shunned.brokers
        assert not pool.memory.contended
        reading = asyncio.create_task(pool.fetch())
        await until(lambda: pool.memory.contended)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        first.release()
        assert pool.memory.used_bytes == 0


async def test_while_memory_is_short_nobody_gets_in_line_and_small_answers_need_none() -> None:
    async with pooled(memory_bytes=1 << 20) as (pool, server):
        server.answer = fetched(records=bytes(1 << 20))
        first = await pool.fetch()
        server.answer = fetched(records=bytes(200))
        polling = asyncio.create_task(pool.read())
        await until(lambda: len(server.fetches) == 2)
        assert len(await polling) == 204
        server.answer = fetched(records=bytes(1000))
        waiting = asyncio.create_task(pool.fetch())
        await until(lambda: pool.memory.contended)
        assert await pool.refused() is LeaderReason.NO_MEMORY
        assert len(server.fetches) == 3
        first.release()
        (await waiting).release()
        assert len(await pool.read()) == 1004


async def test_many_reads_that_are_cancelled_at_any_step_leave_nothing_behind() -> None:
    async with pooled(memory_bytes=2000, replica_connections_max=5) as (pool, server):
        server.answer = fetched(records=bytes(700))
        for steps in range(40):
            reads = [asyncio.create_task(pool.fetch()) for _ in range(3)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for read in reads:
                read.cancel()
            for ended in await asyncio.gather(*reads, return_exceptions=True):
                if isinstance(ended, ReplicaAnswer):
                    ended.release()
            assert pool.memory.used_bytes == 0
        assert len(await pool.read()) == 704


class ShortSessions(BrokerAccess):
    """Sessions that end at once; `failure` is the error of authenticating again."""

    again = 0
    failure: Exception | None = None

    async def authenticate(self, connection: BrokerConnection) -> float | None:
        self.again += 1
        if self.failure is not None:
            raise self.failure
        return 0.0


async def test_a_connection_whose_session_has_ended_authenticates_before_it_is_used_again() -> None:
    async with pooled() as (pool, server):
        access = pool.cluster.access = ShortSessions(pool.settings)
        for _ in range(3):
            assert await pool.read() == fetched()
        assert (access.again, len(server.connections)) == (3, 1)  # the first one as it connected
        access.failure = BrokerUnreachable("the broker rejects the proxy's credentials")
        assert await pool.refused() is LeaderReason.UNREACHABLE
        assert len(pool.connections) == 0
        access.failure = None
        await until(lambda: not pool.shunned.brokers)
        assert await pool.read() == fetched()
