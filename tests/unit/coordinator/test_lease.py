"""A lease on work that one proxy does for all: it is renewed while the work lasts, and the work ends with it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.coordinator import lease as module
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.lease import Lease, LeaseLost
from tests.registry_model import ModelFleetStore

WAIT_S = 20.0


class Store(ModelFleetStore):
    """Counts renewals by holder; may be away, or give the lease to somebody else."""

    def __init__(self) -> None:
        self.now_ms = 0
        super().__init__(lambda: self.now_ms)
        self.renewals: dict[str, int] = {}
        self.away = False

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        if self.away:
            raise CoordinatorUnavailable("away")
        self.renewals[holder] = self.renewals.get(holder, 0) + 1
        return await super().hold(name, holder, lease_ms)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.0)


async def held(store: Store, holder: str = "me") -> Lease:
    lease = Lease(store, "work", holder)
    await lease.renew()
    assert lease.held
    return lease


async def test_the_lease_is_renewed_as_long_as_the_work_lasts() -> None:
    store = Store()
    lease, other = await held(store), Lease(store, "work", "other")

    async def work() -> None:
        for _ in range(5):
            store.now_ms += module.LEASE_MS - 1
            renewals = store.renewals["me"]
            while store.renewals["me"] == renewals:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0)
            await other.renew()
            assert not other.held

    async with asyncio.timeout(WAIT_S):
        await lease.work(work)
    assert lease.held


async def test_work_whose_lease_another_one_took_ends() -> None:
    store = Store()
    lease, ended = await held(store), asyncio.Event()

    async def work() -> None:
        store.now_ms += module.LEASE_MS + 1
        assert await store.hold("work", "other", module.LEASE_MS)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(WAIT_S):
        with pytest.raises(LeaseLost, match="another proxy may hold the lease on work"):
            await lease.work(work)
    assert ended.is_set()
    assert not lease.held


async def test_work_ends_when_a_lease_that_can_not_be_renewed_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE_MS", 20)
    store, losses = Store(), 0

    def lost() -> None:
        nonlocal losses
        losses += 1

    lease = Lease(store, "work", "me", lost)
    async with asyncio.timeout(WAIT_S):
        while not lease.held:
            await lease.renew()
        store.away = True
        with pytest.raises(LeaseLost):
            await lease.work(asyncio.Event().wait)
    assert losses


async def test_errors_of_the_work_are_raised_and_a_cancelled_caller_cancels_the_work() -> None:
    lease, began, ended = await held(Store()), asyncio.Event(), asyncio.Event()

    async def breaks() -> None:
        raise ValueError("odd")

    async def lasts() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ValueError, match="odd"):
        await lease.work(breaks)
    working = asyncio.create_task(lease.work(lasts))
    await began.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert ended.is_set()


async def test_nothing_begins_without_the_lease() -> None:
    lease, began = Lease(Store(), "work", "me"), False

    async def work() -> None:
        nonlocal began
        await asyncio.sleep(0)
        began = True

    with pytest.raises(LeaseLost):
        await lease.work(work)
    assert not began
