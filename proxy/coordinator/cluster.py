"""A store of several primaries: a Redis-compatible cluster (decision record 0150).

redis-py's cluster client knows the cluster's servers and slots. Commands and scripts go to a server by its own client,
whose pool is like that of a single server, and nothing is sent twice unless a server has said that it did not run it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.exceptions import (
    AskError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as StoreConnectionError

from proxy import config
from proxy.coordinator.addresses import server_addresses, single_url
from proxy.coordinator.call_times import CallTimes
from proxy.coordinator.pool import Pool, pool_options

log = structlog.get_logger()

NOT_RUN = (AskError, TryAgainError)
"""Replies of a server that has not run the call (MOVED is an AskError); the call may be sent again."""
MOST_MOVED = 3
"""Times that a call follows MOVED without a pause."""
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1
"""Pauses before a call is sent again to a server that moves its slot."""
_MAP_PAUSE_S = 0.25
"""Shortest time between two readings of the map of slots."""
_MAP_OPTIONS = frozenset({"max_connections", "timeout", "longest_s", "connection_class", "retry", "host", "port", "db"})
"""Options of pools that the client which reads the map gets in another way."""


class Redirects:
    """Decides whether and when a call that was not run is sent again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._until_s = asyncio.get_running_loop().time() + cluster.timeout_s
        self._pause_s = _FIRST_PAUSE_S
        self._moved = 0

    async def again(self, answers: Sequence[AskError | TryAgainError]) -> bool:
        """Wait until calls with these answers may be sent again; False if there is no time left."""
        waits = False
        for answer in answers:
            self._cluster.redirects[_kind(answer)] += 1
            if isinstance(answer, MovedError) and await self._cluster.learn(answer):
                continue
            waits = True
        self._moved += not waits
        if asyncio.get_running_loop().time() + self._pause_s >= self._until_s:
            return False
        if waits or self._moved > MOST_MOVED:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


class Cluster(RedisCluster):
    """A client for each primary, and the map of slots.

    A command of one key goes to the primary that has the key. Everything else is sent to a `server_of` a key, or to
    each of the `primaries`.
    """

    def __init__(self, settings: config.Redis) -> None:
        self._options = pool_options(settings, single_url(settings.url))
        self._addresses = server_addresses(settings.url)
        self.timeout_s = settings.timeout_ms / 1000
        self.speaks_tls = issubclass(self._options.get("connection_class", object), SSLConnection)
        super().__init__(
            startup_nodes=[ClusterNode(*address) for address in self._addresses],
            require_full_coverage=False,
            reinitialize_steps=0,
            retry=self._options["retry"],
            ssl=self.speaks_tls,
            **{name: value for name, value in self._options.items() if name not in _MAP_OPTIONS}
            | {"socket_timeout": self.timeout_s / 2, "socket_connect_timeout": self.timeout_s / 2},
        )
        self.redirects: Counter[str] = Counter()
        """Answers MOVED, ASK and TRYAGAIN so far."""
        self._servers: dict[tuple[str, int], Redis] = {}
        self._slots: dict[str, int] = {}
        self._has_map = False
        self._why_no_map = ""
        self._reading: asyncio.Task[None] | None = None
        self._read_s = float("-inf")

    async def server_of(self, key: str) -> Redis:
        """Return the client of the primary that has a key's slot. Raises redis-py's ConnectionError if none is
        known."""
        await self._need_map()
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self.keyslot(key)
        try:
            node = self.nodes_manager.get_node_from_slot(slot)
        except (LookupError, SlotNotCoveredError):
            self.suspect()
            raise StoreConnectionError(f"no server of the cluster serves slot {slot}") from None
        return self._server(node.host, int(node.port))

    def name_of(self, key: str) -> str:
        """Return the address of the primary that has a key's slot, as far as the map says; empty if it does not."""
        try:
            return str(self.nodes_manager.get_node_from_slot(self.keyslot(key)).name)
        except (LookupError, SlotNotCoveredError):
            return ""

    def slots_by_server(self) -> dict[str, int]:
        """Return the number of slots of each primary, as far as the map says."""
        return Counter(nodes[0].name for nodes in self.nodes_manager.slots_cache.values() if nodes)

    def servers_called(self) -> list[Redis]:
        """Return the clients of the servers of the map that were called so far."""
        return list(self._servers.values())

    async def primaries(self) -> dict[str, Redis]:
        """Return the client of each primary that has slots, by address; the map is read before. Raises as
        `server_of`."""
        await self.read_map()
        if self._why_no_map:
            raise StoreConnectionError(self._why_no_map)
        return {node.name: self._server(node.host, int(node.port)) for node in self.get_primaries()}

    async def read_map(self) -> None:
        """Read the map of slots now; a failure leaves the present one."""
        self._read_s = float("-inf")
        self.suspect()
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def suspect(self) -> None:
        """Read the map of slots soon, in the background: it may be outdated."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_map())

    async def learn(self, moved: MovedError) -> bool:
        """Note the server that MOVED names; False if it names none."""
        self.suspect()
        if not moved.host or not self._has_map:
            return False
        self.nodes_manager.slots_cache.setdefault(moved.slot_id, [])  # a slot that nobody served has no entry
        await self.nodes_manager.move_slot(moved)
        return True

    async def renew(self) -> None:
        """Use no present connection for another call, and read the map again."""
        for server in self._servers.values():
            pool_of(server).renew()
        self.suspect()

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command of one key, which is its first argument."""
        redirects = Redirects(self)
        while True:
            try:
                server = await self.server_of(args[1])
                return await server.execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
            except NOT_RUN as answer:
                if not await redirects.again([answer]):
                    raise
            except ResponseError:
                raise
            except BaseException:  # a call that hangs is cancelled
                self.suspect()
                raise

    async def aclose(self) -> None:
        """Close all connections."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        for server in self._servers.values():
            await server.aclose()
        self._servers.clear()
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")

    async def _need_map(self) -> None:
        if not self._has_map:
            await self.read_map()
        if not self._has_map:
            raise StoreConnectionError(self._why_no_map)

    async def _read_map(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._read_s + _MAP_PAUSE_S - loop.time()))
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.nodes_manager.initialize()
        except (RedisError, RedisClusterException, OSError, TimeoutError, LookupError) as error:
            self._why_no_map = str(error) or "the cluster's servers did not answer"
            # All servers may have other addresses by now; the names in `redis.url` lead to them.
            configured = [ClusterNode(*address, **self.connection_kwargs) for address in self._addresses]
            self.nodes_manager.set_nodes(self.nodes_manager.startup_nodes, {node.name: node for node in configured})
        else:
            self._has_map, self._why_no_map = True, ""
            known = {(node.host, int(node.port)) for node in self.get_nodes()}
            for address in self._servers.keys() - known:
                pool = pool_of(self._servers.pop(address))
                pool.renew()  # those in use end when they are released
                await pool.disconnect(inuse_connections=False)
        finally:
            self._read_s = loop.time()

    def _server(self, host: str, port: int) -> Redis:
        server = self._servers.get((host, port))
        if server is None:
            options = self._options | {"host": host, "port": port}
            server = self._servers[host, port] = Redis.from_pool(Pool(**options))
        return server


Store = Redis | Cluster
"""The client of the coordinator's store."""


def pool_of(server: Redis) -> Pool:
    """Return the connections to a server."""
    pool = server.connection_pool
    assert isinstance(pool, Pool)
    return pool


async def server_of(store: Store, key: str) -> Redis:
    """Return the client of the server that has a key. Raises as `Cluster.server_of`."""
    return await store.server_of(key) if isinstance(store, Cluster) else store


async def primaries(store: Store) -> dict[str, Redis]:
    """Return the client of each server that takes writes, by a name that is empty for a single server."""
    return await store.primaries() if isinstance(store, Cluster) else {"": store}


def call_times(store: Store) -> dict[str, CallTimes]:
    """Return the time that calls took, by the server that was called."""
    servers = store.servers_called() if isinstance(store, Cluster) else [store]
    pools = [server.connection_pool for server in servers]
    return {pool.server_name: pool.times for pool in pools if isinstance(pool, Pool)}


def number_of_primaries(store: Store) -> int:
    """Return how many servers take writes, as far as the map says."""
    return len(store.get_primaries()) if isinstance(store, Cluster) else 1


def _kind(answer: AskError | TryAgainError) -> str:
    if isinstance(answer, MovedError):
        return "moved"
    return "ask" if isinstance(answer, AskError) else "tryagain"
