"""Pub/sub that reconnects forever, and reports when messages may have been missed.

A cluster has a subscription for each of its servers. When a slot moves, its old server ends the subscription to its
channels, and they are subscribed to at their new server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from typing import NamedTuple

import structlog
from redis.asyncio import Redis
from redis.exceptions import MovedError, RedisError

from proxy.coordinator.cluster import Cluster, Store, server_of

log = structlog.get_logger()

_PAUSE_FIRST_S = 0.05
_PAUSE_LONGEST_S = 2.0
_MOST_WAITING = 1_000
"""Messages of a cluster's servers that wait for the reader; then the servers' connections wait."""


async def messages(store: Store, channels: Collection[str], *, idle_s: float) -> AsyncGenerator[bytes | None]:
    """Yield the messages of all channels, forever; yield None after each subscription, the first one included.

    After `idle_s` without a message, send a ping. If nothing comes for `idle_s` again, give up the connection.
    """
    found = _of_cluster(store, channels, idle_s) if isinstance(store, Cluster) else _of_server(store, channels, idle_s)
    async with aclosing(found):
        async for message in found:
            yield message


async def _of_server(server: Redis, channels: Collection[str], idle_s: float) -> AsyncGenerator[bytes | None]:
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            async with aclosing(until_it_breaks(server, [channels], idle_s)) as connection:
                async for message in connection:
                    pause_s = _PAUSE_FIRST_S
                    yield message
        except (RedisError, OSError) as error:
            _report(error, pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_LONGEST_S)


class _Heard(NamedTuple):
    """Something from a server: as `messages` yields it, or why the subscription has ended."""

    server: Redis
    message: bytes | RedisError | OSError | None


class _Subscription(NamedTuple):
    """A server's subscription."""

    channels: frozenset[str]
    task: asyncio.Task[None]


class _Subscriptions:
    """The subscriptions of a cluster's servers; all messages go into one queue."""

    def __init__(self, cluster: Cluster, idle_s: float) -> None:
        self.queue: asyncio.Queue[_Heard] = asyncio.Queue(_MOST_WAITING)
        self._cluster = cluster
        self._idle_s = idle_s
        self.begun: set[Redis] = set()
        """Servers that have not confirmed a subscription yet."""
        self._by_server: dict[Redis, _Subscription] = {}

    async def add(self, channels: Iterable[str]) -> set[str]:
        """Subscribe to channels at their servers; return those that no known server has."""
        places: dict[Redis, set[str]] = {}
        homeless = set()
        for channel in channels:
            try:
                places.setdefault(await server_of(self._cluster, channel), set()).add(channel)
            except RedisError:
                homeless.add(channel)
        for server, some in places.items():
            if server in self._by_server:
                some |= await self.remove(server)
            task = asyncio.create_task(self._listen(server, some))
            self._by_server[server] = _Subscription(frozenset(some), task)
            self.begun.add(server)
        return homeless

    async def remove(self, server: Redis) -> frozenset[str]:
        """End a server's subscription; return its channels."""
        self.begun.discard(server)
        ended = self._by_server.pop(server, None)
        if ended is None:
            return frozenset()
        ended.task.cancel()
        await asyncio.gather(ended.task, return_exceptions=True)
        return ended.channels

    async def close(self) -> None:
        """End all subscriptions."""
        for server in list(self._by_server):
            await self.remove(server)

    async def _listen(self, server: Redis, channels: Collection[str]) -> None:
        try:
            # The channels of a request must have one slot.
            requests = [[channel] for channel in channels]
            async with aclosing(until_it_breaks(server, requests, self._idle_s)) as connection:
                async for message in connection:
                    await self.queue.put(_Heard(server, message))
        except (RedisError, OSError) as error:
            if isinstance(error, MovedError):
                await self._cluster.learn(error)
            self._cluster.suspect()
            await self.queue.put(_Heard(server, error))


async def _of_cluster(cluster: Cluster, channels: Collection[str], idle_s: float) -> AsyncGenerator[bytes | None]:
    loop = asyncio.get_running_loop()
    subscriptions = _Subscriptions(cluster, idle_s)
    homeless = set(channels)
    retry_s, pause_s = loop.time(), _PAUSE_FIRST_S
    is_confirmed = has_begun = False
    try:
        while True:
            if homeless and loop.time() >= retry_s:
                homeless = await subscriptions.add(homeless)
                retry_s, pause_s = loop.time() + pause_s, min(2 * pause_s, _PAUSE_LONGEST_S)
            try:
                async with asyncio.timeout_at(retry_s if homeless else None):
                    server, message = await subscriptions.queue.get()
            except TimeoutError:
                continue
            if isinstance(message, Exception):
                homeless |= await subscriptions.remove(server)
                _report(message, pause_s)
            elif message is None:
                is_confirmed = True
                subscriptions.begun.discard(server)
            elif not homeless:
                pause_s = _PAUSE_FIRST_S
            if not has_begun and is_confirmed and not subscriptions.begun:
                # The first None comes when all servers have confirmed that can be reached.
                has_begun = True
                yield None
            elif has_begun and not isinstance(message, Exception):
                yield message
    finally:
        await subscriptions.close()


async def until_it_breaks(
    server: Redis, requests: Collection[Collection[str]], idle_s: float
) -> AsyncGenerator[bytes | None]:
    """Yield None after the subscription, and the messages of all channels until it ends. `requests`: channels, in
    requests of their own.

    Raises redis-py's errors, and OSError.
    """
    async with server.pubsub() as pubsub:
        async with asyncio.timeout(idle_s):
            for channels in requests:
                await pubsub.ssubscribe(*channels)
        missing, pinged = sum(map(len, requests)), False
        while True:
            message = await pubsub.get_message(timeout=idle_s)
            if pubsub.connection is not None and pubsub.connection.should_reconnect():
                raise ConnectionError("its connection is replaced: it is old, or redis.url may lead to another server")
            if message is None:
                if pinged or missing:
                    raise TimeoutError("the store is silent")
                await pubsub.ping()
                pinged = True
                continue
            pinged = False
            if message["type"] == "smessage":
                yield message["data"]
            elif message["type"] == "sunsubscribe":
                raise ConnectionError("the channel's slot has moved to another server")
            elif message["type"] == "ssubscribe":
                if not missing:
                    raise ConnectionError("the client reconnected by itself")
                missing -= 1
                if not missing:
                    yield None


def _report(error: RedisError | OSError, pause_s: float) -> None:
    log.warning("subscription_lost", reason=str(error) or type(error).__name__, retry_in_s=pause_s)
