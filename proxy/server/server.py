"""The process: listeners, start, readiness, drain. The only module that opens client sockets.

Start: sockets are bound first, so that a taken port is noticed at once. They listen when the parts have answered
(`start.py`). A taken port ends the process with one line.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import structlog

from proxy.admin.http import AdminServer
from proxy.admin.process_source import ProcessSource
from proxy.assembly.handlers import build_handlers
from proxy.assembly.parts import Parts, build_parts
from proxy.client.handler import Handlers
from proxy.config import Listeners, Settings
from proxy.connection.connection import ClientConnection
from proxy.connection.tls_listener import TlsListener
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.process import open_files
from proxy.process.ports import Bound, StartError, bind_all, bind_late
from proxy.process.sharing import Sharing
from proxy.routing.fleet import Fleet
from proxy.security.server_names import ServerNames
from proxy.security.tls import TlsError, TlsFiles, listener_tls
from proxy.server.reload import Reloader
from proxy.server.start import Start
from proxy.storage import open_storage
from proxy.storage.interface import StorageError

log = structlog.get_logger()

_BACKLOG = 1024
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Outside(Protocol):
    """The process's interface to the outside: the admin port, or the link to the parent of workers."""

    async def start(self) -> None:
        """Begin to answer questions. Raises StartError."""

    async def close(self) -> None:
        """Stop answering questions."""


class Server:
    """One proxy process, from start to drain."""

    def __init__(
        self,
        settings: Settings,
        *,
        outside: Callable[[ProcessSource], Outside] | None = None,
        hold_ports: Callable[[int], None] | None = None,
        sharing: Sharing | None = None,
        read_settings: Callable[[], Settings] | None = None,
    ) -> None:
        """`outside` replaces the admin port.

        `hold_ports` is for a worker, which shares its ports with others. It requests from the parent to hold the ports
        of a broker that joined; the parent's answer goes to `ports_held`.

        `sharing` is for a worker, and for the storage process of workers, which has no clients.

        `read_settings` is for a reload, see `Reloader`.
        """
        self.settings = settings
        self._sharing = sharing
        self.reloader = Reloader(settings, read_settings, self._take_settings)
        self._parts: Parts | None = None
        self._handlers: Handlers | None = None
        self._outside = outside or partial(AdminServer, settings.admin)
        self._shared_ports = hold_ports is not None
        self._ask_for_ports = hold_ports or (lambda node_id: None)
        self._held: set[int] = set()
        """Brokers that joined, whose ports the parent holds."""
        self._late: list[socket.socket] = []
        """Sockets of brokers that joined."""
        self._short_work: set[asyncio.Task[None]] = set()
        self.not_ready: str | None = "starting"
        """Why `/readyz` and `/servez` answer 503 while starting or draining; None from the start's end on."""
        self.start = Start(settings, self._keep, self._wait_for)
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[asyncio.Server | TlsListener] = []
        self._tls: dict[Listeners, TlsFiles] = {}

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises StartError."""
        stop = self._on_signals()
        self._keep(self.reloader.keep_reloading())
        sockets = [] if self._is_storage else bind_all(self.settings, shared=self._shared_ports)
        parts = self._parts = await self._build()
        outside = self._outside(
            ProcessSource(parts, partial(self.why_not_ready, parts), stop.set, why_not_serving=self.why_not_serving)
        )
        try:
            await outside.start()
            if await self._until(stop, self.start.run(parts)):
                if parts.diskless.server is not None:
                    open_files.raise_limit()
                    parts.diskless.server.listen()
                else:
                    await self._take_clients(parts, sockets)
                self.not_ready = None
                await stop.wait()
                await self._drain(parts, stop)
        finally:
            for one in (*(bound.socket for bound in sockets), *self._late):
                one.close()
            await self._close(parts, outside)

    @property
    def _is_storage(self) -> bool:
        return self._sharing is not None and self._sharing.is_storage

    async def _take_clients(self, parts: Parts, sockets: list[Bound]) -> None:
        parts.clients.limit_connections()
        for bound in sockets:
            await self._listen(bound)
        parts.brokers.broker_ports.begin(self._listen_late, self._ports_changed, self._hold)
        await parts.routing.fleet.begin_serving()
        log.info(
            "ready",
            rack=self.settings.rack,
            bootstrap=f"{self.settings.listeners.client_host}:{self.settings.listeners.bootstrap_port}",
            brokers=sorted(parts.brokers.cluster.view.brokers),
            diskless_topics=len(parts.topics.topics.all()),
        )

    def _wait_for(self, reason: str) -> None:
        self.not_ready = reason

    def why_not_ready(self, parts: Parts) -> str | None:
        """Return why clients are not served; None if they are."""
        if self.not_ready is not None:
            return self.not_ready
        if self.start.store_failure is not None:
            return self.start.store_failure
        if parts.diskless.link is not None and not parts.diskless.link.is_open:
            return "the storage process does not run yet; it is started again"
        if not parts.routing.fleet.lease_runs():
            return "coordinator: no heartbeat within fleet.lease_ms; start the store or fix redis.url"
        if parts.guard.store_watch.unfit is not None:
            return f"coordinator: {parts.guard.store_watch.unfit}"
        if parts.brokers.cluster.failure is not None:
            return f"brokers: {parts.brokers.cluster.failure}; start them or fix brokers.bootstrap"
        return None

    def why_not_serving(self) -> str | None:
        """Return why no clients are accepted; None if they are. Clients of classic topics need no coordinator."""
        return self.not_ready

    async def _build(self) -> Parts:
        """Build all parts. Raises StartError."""
        try:
            self._tls = {
                listeners: listener_tls(
                    listeners.tls,
                    f"{self.settings.section_of(listeners)}.tls",
                    ServerNames(listeners) if listeners.by_name else None,
                )
                for listeners in self.settings.all_listeners
                if listeners.tls is not None
            }
            self._warn_of_clear_text()
            storage = open_storage(self.settings.storage, self.settings.storage_class)
            store = await connect(self.settings.redis)
            parts = build_parts(self.settings, storage, store, self._tls.values(), self._sharing)
        except (StorageError, TlsError, StoreUnfit) as error:
            raise StartError(str(error)) from error
        self._handlers = build_handlers(parts)
        return parts

    def _warn_of_clear_text(self) -> None:
        """Warn if clients may send in clear text what the brokers require to be encrypted."""
        for listeners in self.settings.all_listeners:
            clear = listeners.tls is None and listeners.host not in _LOOPBACK
            if clear and self.settings.brokers.security_protocol.endswith("SSL"):
                log.warning(
                    "listener_in_clear_text",
                    listeners=self.settings.section_of(listeners),
                    reason="brokers.security_protocol uses TLS, but these listeners do not: data from clients, "
                    "including passwords, can be read on the network",
                    remedy=f"set {self.settings.section_of(listeners)}.tls",
                )

    async def _listen(self, bound: Bound) -> None:
        assert self._parts is not None
        assert self._handlers is not None
        made = partial(ClientConnection, self._parts.clients.shared, self._handlers, bound.listeners)
        tls = self._tls.get(bound.listeners)
        try:
            if tls is None:
                loop = asyncio.get_running_loop()
                made_for = partial(made, bound.node_id)
                self._listeners.append(await loop.create_server(made_for, sock=bound.socket, backlog=_BACKLOG))
            else:
                listener = TlsListener(
                    bound.socket,
                    tls,
                    made,
                    self._parts.clients.connections,
                    self.settings.limits,
                    node_id=bound.node_id,
                    by_name=bound.listeners.by_name,
                )
                listener.start(_BACKLOG)
                self._listeners.append(listener)
        except OSError as error:  # another process bound the port at the same time, and now listens
            raise bound.taken(error) from error

    def _listen_late(self, listeners: Listeners, node_id: int) -> None:
        """Listen for a broker that joined; at once, as the next answer names the port. Raises StartError."""
        bound = bind_late(self.settings, listeners, node_id, shared=self._shared_ports)
        try:
            bound.socket.listen(_BACKLOG)
        except OSError as error:
            bound.socket.close()
            raise bound.taken(error) from error
        self._late.append(bound.socket)
        self._see_through(self._listen(bound))

    def _ports_changed(self) -> None:
        """Name the new port to clients at once, and have the other proxies name it soon."""
        assert self._parts is not None
        self._parts.routing.fleet.take_own_ports()
        self._see_through(self._beat(self._parts.routing.fleet))

    async def _beat(self, fleet: Fleet) -> None:
        with suppress(CoordinatorUnavailable):  # a later heartbeat will announce it
            await fleet.beat()

    def _see_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Run short work that ends by itself, and own its task."""
        task = asyncio.get_running_loop().create_task(work)
        self._short_work.add(task)
        task.add_done_callback(self._short_work.discard)

    def _hold(self, node_id: int) -> bool:
        """True if this proxy has a broker's ports. A worker returns False at first: its parent answers later."""
        if self._shared_ports and node_id not in self._held:
            self._ask_for_ports(node_id)
            return False
        return True

    def ports_held(self, node_id: int, error: str | None) -> None:
        """Take the parent's answer: it holds a broker's ports, or `error` is why it can't."""
        if self._parts is None:
            return
        if error is not None:
            self._parts.brokers.broker_ports.failed(node_id, error)
            return
        self._held.add(node_id)
        self._parts.brokers.broker_ports.open_missing()

    async def _drain(self, parts: Parts, stop: asyncio.Event) -> None:
        """Announce the end to clients of other proxies, then stop accepting, answer requests in flight, and close.

        A second signal ends the drain at once, except for the last rollup, which has a few seconds of its own.
        """
        connections = parts.clients.connections
        self.not_ready = "draining"
        log.info("draining", connections=len(connections))
        stop.clear()
        try:
            async with asyncio.timeout(self.settings.limits.drain_timeout_ms / 1000):
                drained = await self._until(stop, self._hand_over(parts))
            log.info("drained" if drained else "drain_cut_short", connections=len(connections))
        except TimeoutError:
            log.warning("drain_timeout", connections=len(connections), remedy="raise limits.drain_timeout_ms")
        finally:
            await parts.accounting.rollups.finish()

    async def _hand_over(self, parts: Parts) -> None:
        """Hand the clients over. In this order no client that reconnects, or requests Metadata, is sent here again."""
        await parts.routing.fleet.end_serving()
        parts.brokers.broker_ports.end()
        await asyncio.gather(*self._short_work, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        await parts.clients.connections.drain()
        if parts.diskless.server is not None:
            with suppress(TimeoutError):  # only this process is to end
                async with asyncio.timeout(self.settings.limits.drain_timeout_ms / 2000):
                    await parts.diskless.server.wait_until_unused()
        await parts.diskless.intake.drain()
        await parts.diskless.wal.drain()
        await parts.process.unfinished.finish()
        with suppress(StorageError):  # other proxies know it too; the log has a line if storage fails
            await parts.guard.store_watch.keep_known()
        await parts.routing.fleet.leave()

    async def _until(self, stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Do the work unless a signal comes first; True if it was done."""
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
        """Stop being ready: background work never ends by itself. Without it the caches go stale, so clients must
        leave."""
        if not task.cancelled():
            self.not_ready = f"background work ended: {task.exception()!r}; restart the proxy"
            log.critical("background_work_ended", exc_info=task.exception(), remedy="restart the proxy")

    async def _close(self, parts: Parts, outside: Outside) -> None:
        for listener in self._listeners:
            listener.close()
        parts.brokers.broker_ports.end()
        tasks = [*self._tasks, *self._short_work, *self.start.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await parts.close()
        await outside.close()

    def _on_signals(self) -> asyncio.Event:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.reloader.want)
        return stop

    def _take_settings(self, changed: Collection[str]) -> None:
        if self._parts is not None:  # otherwise the parts start with the settings of that moment
            self._parts.take_settings(changed)
