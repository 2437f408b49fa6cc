"""A lease on work that only one proxy of the fleet may do at a time.

A task of its own renews the lease, however long the work takes. Work that runs when the lease is lost is cancelled:
another proxy may do the same work by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.coordinator.clock import running_ms
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import FleetStore

LEASE_MS = 5_000
"""Time after which a lease that is not renewed goes to the next proxy."""
RENEW_S = 1.0
"""Time between two renewals while work is done."""


class LeaseLost(Exception):
    """The lease was lost while work was done; the work was cancelled."""


class Lease:
    """A lease of the fleet, renewed by `renew`, and all the time while work is done.

    `on_loss` is called when it is lost, and at each `renew` that does not get it.
    """

    def __init__(self, store: FleetStore, name: str, holder: str, on_loss: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._name = name
        self._holder = holder
        self._on_loss = on_loss
        self._lost = asyncio.Event()
        self._lost.set()
        self._expiry: asyncio.TimerHandle | None = None
        self._until_ms = 0
        """End of the lease, by a clock that goes on while the machine is suspended."""

    @property
    def held(self) -> bool:
        """True if this proxy holds the lease, as far as it knows."""
        return not self._lost.is_set() and running_ms() < self._until_ms

    async def renew(self) -> None:
        """Take or renew the lease once. While the store does not answer, the lease runs until its end: the fleet logs
        that."""
        loop = asyncio.get_running_loop()
        began_s, began_ms = loop.time(), running_ms()
        try:
            held = await self._store.hold(self._name, self._holder, LEASE_MS)
        except CoordinatorUnavailable:
            if not self.held:
                self._lose()
            return
        until_s = began_s + LEASE_MS / 1000
        if not held or loop.time() >= until_s:
            self._lose()
            return
        if self._expiry is not None:
            self._expiry.cancel()
        # Counted from before the call: the store counts from a later time.
        self._expiry = loop.call_at(until_s, self._lose)
        self._until_ms = began_ms + LEASE_MS
        self._lost.clear()

    async def work(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do work as long as the lease is held. Raises LeaseLost, and the errors of the work."""
        if not self.held:
            raise LeaseLost(self._why_lost())
        doing = asyncio.ensure_future(work())
        others = [asyncio.ensure_future(self._keep_renewing()), asyncio.ensure_future(self._lost.wait())]
        try:
            await asyncio.wait({doing, *others}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise LeaseLost(self._why_lost())
            await doing
        finally:
            for task in (doing, *others):
                task.cancel()
            await asyncio.gather(doing, *others, return_exceptions=True)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    def _why_lost(self) -> str:
        return f"another proxy may hold the lease on {self._name}, and go on with it"

    def _lose(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._lost.set()
        self._on_loss()
