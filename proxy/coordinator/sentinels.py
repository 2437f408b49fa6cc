"""A store that Sentinels watch: each new connection goes to the primary that they name."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import proxy

from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import RedisError

from proxy import config
from proxy.coordinator.addresses import SentinelAddress, sentinel_address
from proxy.coordinator.pool import Pool, pool_options

_OF_THE_SERVER = frozenset(
    {
        "host",
        "port",
        "db",
        "username",
        "password",
        "credential_provider",
        "connection_class",
        "max_connections",
        "timeout",
        "longest_s",
    }
)
"""Options of the pool that connections to Sentinels do not share."""


class SentinelPool(Pool):
    """Connections to the primary."""

    is_master = True
    """For redis-py's connections: the primary is wanted, not a replica."""
    check_connection = False

    def __init__(self, settings: config.Redis) -> None:
        address = sentinel_address(settings.url)
        options = pool_options(settings, address.server_url)
        speaks_tls = issubclass(options.get("connection_class", object), SSLConnection)
        options["connection_class"] = SentinelManagedSSLConnection if speaks_tls else SentinelManagedConnection
        self._service = address.service
        of_sentinels = _sentinel_options(address, options, speaks_tls=speaks_tls)
        self._sentinels = [
            Sentinel([one], sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
            for one in address.sentinels
        ]
        """Each is asked by itself, with a timeout of its own."""
        self._pause_s = settings.timeout_ms / 1000 / (len(self._sentinels) + 1)
        self._primary: tuple[str, int] | None = None
        self._asking: asyncio.Task[tuple[str, int]] | None = None
        """Asks the Sentinels. Connections that are opened at the same time share it: after a promotion there are many,
        and a Sentinel's answer costs more than a connection."""
        super().__init__(**{name: value for name, value in options.items() if name not in {"host", "port"}})
        self.connection_kwargs["connection_pool"] = proxy(self)

    @property
    def server_name(self) -> str:
        """Return the address of the primary; empty if no Sentinel has named it yet."""
        return "" if self._primary is None else f"{self._primary[0]}:{self._primary[1]}"

    async def get_master_address(self) -> tuple[str, int]:
        """Return the primary that the first Sentinel names which answers; connections to another one are given up.

        Raises redis-py's ConnectionError if no Sentinel names one.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(_seen)
        return await asyncio.shield(self._asking)

    async def _ask(self) -> tuple[str, int]:
        why = []
        for sentinel in list(self._sentinels):
            try:
                async with asyncio.timeout(self._pause_s):
                    host, port = await sentinel.discover_master(self._service)
            except (RedisError, OSError, TimeoutError) as error:
                why.append(str(error) or "a Sentinel does not answer")
                continue
            self._sentinels.remove(sentinel)
            self._sentinels.insert(0, sentinel)
            primary = (str(host), int(port))
            if self._primary is not None and primary != self._primary:
                self.renew()
            self._primary = primary
            return primary
        raise StoreConnectionError(f"no Sentinel names a primary of {self._service!r} ({'; '.join(why)})")

    async def aclose(self) -> None:
        """Close all connections."""
        await super().aclose()
        if self._asking is not None:
            self._asking.cancel()
        for sentinel in self._sentinels:
            await sentinel.aclose()


def _seen(asked: asyncio.Task[tuple[str, int]]) -> None:
    """Look at the outcome, so that asyncio does not report an error that no caller has waited for."""
    if not asked.cancelled():
        asked.exception()


def _sentinel_options(address: SentinelAddress, options: dict[str, Any], *, speaks_tls: bool) -> dict[str, Any]:
    found = {name: value for name, value in options.items() if name not in _OF_THE_SERVER}
    found |= {"ssl": speaks_tls, "retry": Retry(NoBackoff(), 0)}
    if address.password:
        found |= {"username": address.username, "password": address.password}
    return found


def watched_by_sentinels(settings: config.Redis) -> Redis:
    """Return the client of a store that Sentinels watch; nothing is sent yet."""
    return Redis.from_pool(SentinelPool(settings))
