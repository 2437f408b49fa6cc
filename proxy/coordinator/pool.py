"""The connections to one server of the coordinator's store."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from proxy import config
from proxy.coordinator.call_times import CallTimes
from proxy.coordinator.credentials import credentials_of

SUBSCRIPTIONS = 2
"""Connections for announcements and registry changes, in addition to `redis.max_connections`."""


class Pool(BlockingConnectionPool):
    """Connections that can be renewed: a server that becomes a replica goes on serving its connections.

    The name in `redis.url` leads to the new primary then, but a client that keeps its connections never resolves it.
    """

    def __init__(self, **options: Any) -> None:
        self.times = CallTimes()
        """Time that the calls of scripts take."""
        self._longest_s: float = options.pop("longest_s", 0.0)
        """Age at which a connection is given up; 0 for never."""
        self._made: WeakSet[AbstractConnection] = WeakSet()
        super().__init__(**options)

    @property
    def server_name(self) -> str:
        """Return the address of the server."""
        options = self.connection_kwargs
        return str(options["path"]) if "path" in options else f"{options.get('host')}:{options.get('port')}"

    def make_connection(self) -> AbstractConnection:
        """Return a new connection, which is not open yet."""
        connection: AbstractConnection = super().make_connection()  # type: ignore[no-untyped-call]
        self._made.add(connection)
        return connection

    def renew(self) -> None:
        """Use no present connection for another call. Calls and subscriptions on connections in use end first."""
        for connection in self._made:
            connection.mark_for_reconnect()  # type: ignore[no-untyped-call]

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """Open a connection that is about to be used, or that was given up."""
        await self._end_if_given_up(connection)
        opens = not connection.is_connected
        await super().ensure_connection(connection)
        if opens and self._longest_s:
            give_up = connection.mark_for_reconnect  # one that is opened again early is given up early, too
            asyncio.get_running_loop().call_later(self._longest_s, give_up)

    async def release(self, connection: AbstractConnection) -> None:
        """Release a connection. Do not wait for the end of a connection that was given up: it would delay all
        others."""
        await self._end_if_given_up(connection)
        await super().release(connection)

    async def _end_if_given_up(self, connection: AbstractConnection) -> None:
        if connection.should_reconnect():  # type: ignore[no-untyped-call]
            await connection.disconnect(nowait=True)


def pool_options(settings: config.Redis, url: str) -> dict[str, Any]:
    """Return what every pool is made with. `url`: of one server, as redis-py reads it.

    The client never retries by itself: only the caller knows whether a retry is safe. If there are more than
    `max_connections` calls at a time, they wait for each other, at most `timeout_ms`. Raises ValueError as
    `credentials_of` does.
    """
    timeout_s = settings.timeout_ms / 1000
    parsed: dict[str, Any] = dict(parse_url(url))
    if (credentials := credentials_of(settings, parsed.get("username"))) is not None:
        parsed.pop("username", None)
        parsed["credential_provider"] = credentials
    return {
        **parsed,
        "max_connections": settings.max_connections + SUBSCRIPTIONS,
        "timeout": timeout_s,
        # The client's own timeout is not used: on Python 3.11 it uses `asyncio.wait_for`, which may swallow a
        # cancellation, so that a task does not end. `store_call` sets the timeout.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
        "longest_s": settings.connection_age_s,
    }


def one_server(settings: config.Redis) -> Redis:
    """Return the client of a store that is one server; nothing is sent yet."""
    return Redis.from_pool(Pool(**pool_options(settings, settings.url)))
