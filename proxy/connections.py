"""All client connections: how many are let in, which have been idle for too long, who sent what can't be read."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from proxy.config import Limits
from proxy.stats import Stats

if TYPE_CHECKING:
    from proxy.connection import ClientConnection

log = structlog.get_logger()
_LOG_INTERVAL_S = 1.0


class Connections:
    """The open connections and their limits."""

    def __init__(self, limits: Limits, stats: Stats) -> None:
        self._limits = limits
        self._stats = stats
        self._open: set[ClientConnection] = set()
        self._by_host: Counter[str] = Counter()
        self._emptied: asyncio.Event | None = None
        self._last_log_s = float("-inf")
        self._unlogged = 0

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: ClientConnection) -> bool:
        """Let a connection in, or say no where the limits are reached."""
        if len(self._open) >= self._limits.max_connections:
            self._refused(connection, "limits.max_connections")
            return False
        if self._by_host[connection.host] >= self._limits.max_connections_per_ip:
            self._refused(connection, "limits.max_connections_per_ip")
            return False
        self._open.add(connection)
        self._by_host[connection.host] += 1
        self._stats.connections_opened += 1
        return True

    def forget(self, connection: ClientConnection) -> None:
        """A connection that was admitted has ended."""
        self._open.discard(connection)
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]
        if not self._open and self._emptied is not None:
            self._emptied.set()

    def rejected(self, connection: ClientConnection, reason: str) -> None:
        """A client sent what is no request; at most one log line a second."""
        self._log("client_rejected", connection, reason=reason)

    async def sweep(self) -> None:
        """End connections that are idle, or slow to send a request, for longer than the limits; for ever."""
        idle_s, frame_s = self._limits.idle_timeout_ms / 1000, self._limits.frame_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(idle_s / 4, frame_s / 4, 30.0))
            now_s = loop.time()
            for connection in list(self._open):
                if connection.frame_began_s is not None and connection.frame_began_s < now_s - frame_s:
                    self._log(
                        "client_too_slow", connection, reason="a request took longer than limits.frame_timeout_ms"
                    )
                    connection.abort()
                elif connection.last_active_s < now_s - idle_s and not connection.busy:
                    connection.close()

    async def drain(self) -> None:
        """Let every connection answer what it has read, then close."""
        self._emptied = asyncio.Event()
        for connection in list(self._open):
            connection.drain()
        if self._open:
            await self._emptied.wait()

    def abort(self) -> None:
        """End all of them at once."""
        for connection in list(self._open):
            connection.abort()

    def _refused(self, connection: ClientConnection, limit: str) -> None:
        self._stats.connections_refused += 1
        self._log("connection_refused", connection, reason=f"{limit} is reached", remedy=f"raise {limit}")

    def _log(self, event: str, connection: ClientConnection, **values: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last_log_s < _LOG_INTERVAL_S:
            self._unlogged += 1
            return
        self._last_log_s = now_s
        log.warning(event, client=connection.host, more_like_it=self._unlogged, **values)
        self._unlogged = 0
