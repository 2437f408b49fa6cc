"""The process: listeners, start, readiness, drain. The only module that opens client sockets.

Start: sockets are bound first, so that a taken port is known at once; they listen when storage, coordinator, registry
and brokers have answered. What is not reachable yet is tried again, and `/readyz` says what is missing; what can't heal
(a taken port, a store that could lose commits) ends the process with one line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import structlog

from proxy.admin.http import AdminServer
from proxy.config import Listeners, Settings
from proxy.connection import ClientConnection
from proxy.context import Context
from proxy.coordinator.connect import StoreUnfit, check_store, connect
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.handlers import HANDLERS, check_handlers
from proxy.storage import open_storage
from proxy.storage.interface import StorageError
from proxy.upstream import BrokerUnreachable

log = structlog.get_logger()

_START_RETRY_S = 0.5
_LOG_AGAIN_S = 10.0
_BACKLOG = 1024


class StartError(Exception):
    """The proxy can't start; the text names cause and remedy."""


class _Bound(NamedTuple):
    """A socket that has its port, and what it stands for."""

    listeners: Listeners
    node_id: int | None
    socket: socket.socket


class Server:
    """One proxy process, from start to drain."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.not_ready: str | None = "starting"
        """Why `/readyz` answers 503 while starting or draining; None from the start's end on."""
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[asyncio.Server] = []

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        check_handlers()
        stop = self._on_signals()
        sockets = self._bind()
        context = await self._context()
        admin = AdminServer(context, self.why_not_ready)
        try:
            try:
                await admin.start()
            except OSError as error:
                where = f"{self.settings.admin.host}:{self.settings.admin.port}"
                # asyncio puts the address into the text; it is named already.
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                raise StartError(
                    f"can't listen on {where} (admin.port): {reason}; end the process that holds the port, or "
                    "choose another one"
                ) from error
            if await self._until(stop, self._start(context)):
                await self._listen(context, sockets)
                self.not_ready = None
                log.info(
                    "ready",
                    rack=self.settings.rack,
                    bootstrap=f"{self.settings.listeners.client_host}:{self.settings.listeners.bootstrap_port}",
                    brokers=sorted(context.cluster.view.brokers),
                    diskless_topics=len(context.topics.all()),
                )
                await stop.wait()
                await self._drain(context, stop)
        finally:
            for bound in sockets:
                bound.socket.close()
            await self._close(context, admin)

    def why_not_ready(self, context: Context) -> str | None:
        """What keeps clients from being served; None where all is well."""
        if self.not_ready is not None:
            return self.not_ready
        if not context.fleet.lease_runs():
            return "coordinator: no heartbeat within fleet.lease_ms; start the store or mend redis.url"
        if context.cluster.failure is not None:
            return f"brokers: {context.cluster.failure}; start them or mend brokers.bootstrap"
        return None

    def _bind(self) -> list[_Bound]:
        """One socket for each port of each of the listeners."""
        bound: list[_Bound] = []
        for number, listeners in enumerate(self.settings.all_listeners):
            section = f"additional_listeners[{number - 1}]" if number else "listeners"
            for node, port in listeners.ports.items():
                what = "bootstrap_port" if node is None else f"broker_port_start + {node}"
                try:
                    bound.append(_Bound(listeners, node, _bound_socket(listeners.host, port)))
                except OSError as error:
                    for other in bound:
                        other.socket.close()
                    raise StartError(
                        f"can't listen on {listeners.host}:{port} ({section}.{what}): {error.strerror}; "
                        "end the process that holds the port, or choose another one"
                    ) from error
        return bound

    async def _context(self) -> Context:
        try:
            storage = open_storage(self.settings.storage, self.settings.diskless_storage_class_name)
        except StorageError as error:
            raise StartError(str(error)) from error
        return Context(self.settings, storage, await connect(self.settings.redis), HANDLERS)

    async def _start(self, context: Context) -> None:
        """Everything that must have answered before the first client is let in."""
        await self._healing("storage", context.storage.open)
        await self._healing("coordinator", partial(check_store, context.store, self.settings.redis))
        await self._healing("coordinator", context.fleet.beat)
        await self._healing("coordinator", context.fleet.beat)  # the first one loaded the registry, this one says so
        await self._healing("brokers", context.cluster.refresh)
        for work in (
            context.fleet.keep_beating(),
            context.topics.follow(context.fleet.beat),
            context.reader.coordinates.follow(),
            context.cluster.keep_fresh(),
            context.connections.sweep(),
            context.reservations.keep_settling(),
        ):
            self._keep(work)

    async def _healing(self, part: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try until it works; log the first failure and then now and again."""
        loop = asyncio.get_running_loop()
        log_at_s = 0.0
        while True:
            try:
                await attempt()
                return
            except StoreUnfit as error:
                raise StartError(f"{part}: {error}") from error
            except (StorageError, CoordinatorUnavailable, BrokerUnreachable) as error:
                self.not_ready = f"{part}: {error}"
                if loop.time() >= log_at_s:
                    log.warning("waiting", part=part, reason=str(error))
                    log_at_s = loop.time() + _LOG_AGAIN_S
            await asyncio.sleep(_START_RETRY_S)

    async def _listen(self, context: Context, sockets: list[_Bound]) -> None:
        loop = asyncio.get_running_loop()
        for listeners, node, listener in sockets:
            self._listeners.append(
                await loop.create_server(
                    partial(ClientConnection, context, listeners, node), sock=listener, backlog=_BACKLOG
                )
            )

    async def _drain(self, context: Context, stop: asyncio.Event) -> None:
        """Stop accepting, flush, answer what is in flight, close. A second signal ends it at once."""
        self.not_ready = "draining"
        log.info("draining", connections=len(context.connections))
        stop.clear()
        for listener in self._listeners:
            listener.close()
        try:
            async with asyncio.timeout(self.settings.limits.drain_timeout_ms / 1000):
                await self._until(stop, self._answer_all(context))
            log.info("drained")
        except TimeoutError:
            log.warning("drain_timeout", connections=len(context.connections), remedy="raise limits.drain_timeout_ms")

    async def _answer_all(self, context: Context) -> None:
        await asyncio.gather(context.fleet.leave(), context.wal.drain(), context.connections.drain())
        await context.wal.drain()
        await context.finish()

    async def _until(self, stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work unless a signal comes first; whether it was done."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                await working
                return True
            return False
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        """Background work never ends by itself. If it did, what this proxy knows grows old: clients go elsewhere."""
        if not task.cancelled():
            self.not_ready = f"background work ended: {task.exception()!r}; restart the proxy"
            log.critical("background_work_ended", exc_info=task.exception(), remedy="restart the proxy")

    async def _close(self, context: Context, admin: AdminServer) -> None:
        for listener in self._listeners:
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        context.connections.abort()
        await context.wal.close()
        context.cluster.service.close()
        await context.cache.close()
        await context.storage.close()
        await context.store.aclose()
        await admin.close()

    def _on_signals(self) -> asyncio.Event:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        return stop


def _bound_socket(host: str, port: int) -> socket.socket:
    """A socket that has the port but does not listen yet: who comes too early is refused, and tries another proxy."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
