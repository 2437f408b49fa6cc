"""The start of the process: it waits until storage, coordinator, registry and brokers have answered.

A part that is not reachable yet is retried, and `/readyz` says which one is missing. A problem that retries can't solve
(a store that could lose commits) ends the process with one line.

If the deployment has a journal, and the coordinator's store does not answer, clients are served without it. The
registry is read from the journal, and clients of classic topics are served (decision 0170).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from proxy.assembly.parts import Parts
from proxy.assembly.room import Work
from proxy.brokers.upstream import BrokerUnreachable
from proxy.config import Settings
from proxy.coordinator.connect import StoreUnfit
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.layout import check_store
from proxy.guard.view_watch import NOT_CHECKED, ViewWatch
from proxy.process.ports import StartError
from proxy.storage.interface import StorageError
from proxy.wire.errors import ProtocolError

log = structlog.get_logger()

_RETRY_S = 0.5
_STORE_PATIENCE_S = 2.0
"""Time that the coordinator's store has to answer before classic topics are served without it."""
_LOG_AGAIN_S = 10.0


class Start:
    """Brings up the parts of a process, and begins their background work."""

    def __init__(self, settings: Settings, keep: Callable[[Work], None], wait_for: Callable[[str], None]) -> None:
        """`keep` runs background work; `wait_for` takes the reason for which clients are not served yet."""
        self.store_failure: str | None = None
        """Why the coordinator's store is not used, although clients of classic topics are served."""
        self.tasks: list[asyncio.Task[None]] = []
        """Tasks that open the coordinator's store; they are cancelled when the process ends."""
        self._settings = settings
        self._keep = keep
        self._wait_for = wait_for
        self._waiting = ""

    async def run(self, parts: Parts) -> None:
        """Wait until every part that the first client needs has answered, then begin the background work."""
        await self._healing("storage", parts.stores.storage.open)
        parts.routing.fleet.not_joined = NOT_CHECKED
        opening = asyncio.create_task(self._open_store(parts))
        self.tasks.append(opening)
        await asyncio.wait({opening}, timeout=_STORE_PATIENCE_S)
        if opening.done() or parts.topics.classic_proof is None or not await self._go_without_store(parts, opening):
            await opening
        await self._healing("brokers", parts.brokers.cluster.refresh)
        await parts.topics.topic_defaults.refresh()
        await parts.replicas.replica_selector.refresh()
        for work in parts.background():
            self._keep(work)
        if parts.diskless.link is not None:
            await self._healing("storage process", parts.diskless.link.wait_open)

    async def _open_store(self, parts: Parts) -> None:
        """Wait until the coordinator's store has answered, then begin the work that needs it."""
        fleet, watch = parts.routing.fleet, parts.guard.store_watch
        is_view = parts.stores.journal is not None
        check = partial(check_store, parts.stores.store, self._settings.redis, is_view=is_view)
        await self._healing("coordinator", check, opening=True)
        if is_view:
            await self._healing("brokers", parts.brokers.cluster.refresh, opening=True)
        await self._healing("coordinator", watch.open, opening=True)
        fleet.not_joined = ""
        for _ in range(2):  # the first beat loads the registry, the second one announces it
            await self._healing("coordinator", fleet.beat, opening=True)
        for work in parts.background_on_store():
            self._keep(work)
        if self.store_failure is not None:
            self.store_failure = None
            log.info("store_reachable", effect="diskless topics are served, too")

    async def _go_without_store(self, parts: Parts, opening: asyncio.Task[None]) -> bool:
        """Get ready for clients of classic topics; True if that was faster than the store. Raises StartError."""
        reading = asyncio.create_task(self._read_journal(parts))
        try:
            await asyncio.wait({opening, reading}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return False
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self.store_failure = self._waiting or NOT_CHECKED
        opening.add_done_callback(self._opened)
        log.warning(
            "serving_without_store",
            reason=self.store_failure,
            effect="clients of classic topics are served; diskless topics get retriable errors",
            remedy="start the store or fix redis.url; nothing else is to be done then",
        )
        return True

    async def _read_journal(self, parts: Parts) -> None:
        """Read the registry from the journal, and prove which topics are classic. Raises StartError."""
        watch, proof = parts.guard.store_watch, parts.topics.classic_proof
        assert isinstance(watch, ViewWatch)
        assert proof is not None
        await self._healing("brokers", parts.brokers.cluster.refresh)
        await self._healing("journal", watch.open_journal)
        await self._healing("journal", proof.prove_all)

    def _opened(self, opening: asyncio.Task[None]) -> None:
        """Report that the store can't be opened, for a reason that nobody has thought of."""
        if not opening.cancelled() and (error := opening.exception()) is not None:
            self.store_failure = f"coordinator: {error!r}; restart the proxy"
            log.critical("store_not_opened", exc_info=error, remedy="restart the proxy")

    async def _healing(self, part: str, attempt: Callable[[], Awaitable[None]], *, opening: bool = False) -> None:
        """Retry until the attempt succeeds; log the first failure, then one every `_LOG_AGAIN_S`.

        `opening`: it opens the coordinator's store. If clients are served without the store, the process does not end
        because the store is unfit.
        """
        loop = asyncio.get_running_loop()
        log_at_s = 0.0
        while True:
            try:
                await attempt()
                return
            except (StoreUnfit, StorageError, CoordinatorUnavailable, BrokerUnreachable, ProtocolError) as error:
                serving = opening and self.store_failure is not None
                if isinstance(error, StoreUnfit) and not serving:
                    raise StartError(f"{part}: {error}") from error
                reason = str(error)
                if isinstance(error, BrokerUnreachable) and "brokers." not in reason:
                    reason += "; start them or fix brokers.bootstrap"
                if serving:
                    self.store_failure = f"{part}: {reason}"
                else:
                    self._waiting = f"{part}: {reason}"
                    self._wait_for(self._waiting)
                if loop.time() >= log_at_s:
                    log.warning("waiting", part=part, reason=reason)
                    log_at_s = loop.time() + _LOG_AGAIN_S
            await asyncio.sleep(_RETRY_S)
