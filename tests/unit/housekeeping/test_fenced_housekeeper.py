"""Housekeeping stops while a shard is fenced, and a part that fails stops no other part."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import structlog

from proxy.config import Settings
from proxy.coordinator import lease
from proxy.housekeeping import housekeeper
from proxy.housekeeping.housekeeper import Housekeeper
from tests.registry_model import ModelFleetStore


class Work:
    """Stands for any part of the work, and counts its calls."""

    def __init__(self) -> None:
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        async def work(*_: object) -> None:
            self.done += 1

        return work


class LosableWork(Work):
    """Work that is notified of a lost lease."""

    def lease_lost(self) -> None:
        pass


def settings_of(**intervals: Any) -> Settings:
    return Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},
        **{"redis": {"url": "redis://127.0.0.1:1"}, **intervals},
        storage={"url": "file:///nowhere"},
    )


async def test_a_part_that_fails_is_reported_once_and_stops_no_other(monkeypatch) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    settings = settings_of(
        garbage={"interval_ms": 10},
        producer_id_expiration_check_interval_ms=10,
    )
    broken = 0

    class Broken(Work):
        async def sweep(self) -> None:
            nonlocal broken
            broken += 1
            raise ValueError("not enough values to unpack")

    async def hold(*_: object) -> bool:
        return True

    garbage, others = Work(), Work()
    fleet: Any = SimpleNamespace(hold=hold)
    house = Housekeeper(settings, fleet, "me", others, others, garbage, others, others, Broken(), fenced=dict)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logged:
        keeping = asyncio.create_task(house.keep_house())
        async with asyncio.timeout(20):
            while broken < 3 or garbage.done < 2:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0.005)
    assert not keeping.done()
    assert [entry["work"] for entry in logged if entry["event"] == "housekeeping_broken"] == ["producers"]
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_nothing_is_deleted_while_the_registry_has_lost_changes(monkeypatch) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    settings = settings_of(
        garbage={"interval_ms": 10, "orphan_sweep_interval_ms": 10},
        redis={"url": "redis://127.0.0.1:1", "pack_interval_ms": 10},
        log_retention_check_interval_ms=10,
    )

    async def hold(*_: object) -> bool:
        return True

    gone_back = True
    garbage, retention, index, others = Work(), Work(), Work(), Work()
    others.foreign = False  # type: ignore[attr-defined]
    fleet: Any = SimpleNamespace(hold=hold)
    cluster: Any = SimpleNamespace(cluster_id="ours")
    house = Housekeeper(
        settings,
        fleet,
        "me",
        cluster,
        retention,
        garbage,
        others,
        index,
        others,  # type: ignore[arg-type]
        fenced=dict,
        gone_back=lambda: gone_back,
    )
    keeping = asyncio.create_task(house.keep_house())
    async with asyncio.timeout(20):
        while index.done < 5:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.005)
        assert (garbage.done, retention.done, house.is_paused) == (0, 0, True)
        gone_back = False
        while not garbage.done:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.005)
    assert not house.is_paused
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_it_waits_until_no_shard_is_fenced(monkeypatch) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    settings = settings_of(
        garbage={"interval_ms": 10, "orphan_sweep_interval_ms": 10},
    )
    polls = 0

    async def hold(*_: object) -> bool:
        nonlocal polls
        polls += 1
        return True

    async def polled(times: int) -> None:
        until = polls + times
        while polls < until:  # noqa: ASYNC110 (nothing announces a poll)
            await asyncio.sleep(0)

    fenced = {3: "gone"}
    garbage, others = Work(), Work()
    others.foreign = False  # type: ignore[attr-defined]
    fleet: Any = SimpleNamespace(hold=hold)
    house = Housekeeper(settings, fleet, "me", others, others, garbage, others, others, others, fenced=lambda: fenced)  # type: ignore[arg-type]
    keeping = asyncio.create_task(house.keep_house())
    await asyncio.sleep(0.05)  # all is due by now
    await polled(10)
    assert house.holds_lease
    assert house.is_paused
    assert garbage.done == 0
    fenced.clear()
    await polled(10)
    assert garbage.done > 0
    assert not house.is_paused
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_one_proxy_keeps_house_however_long_a_sweep_takes(monkeypatch) -> None:
    """The sweep of the first proxy lasts until its lease would have ended many times."""
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    monkeypatch.setattr(lease, "RENEW_S", 0.0)
    settings = settings_of(garbage={"interval_ms": 10})
    now_ms, holds, sweeping, most_sweeping = 0, 0, 0, 0

    class Store(ModelFleetStore):
        async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
            nonlocal now_ms, holds
            holds += 1
            now_ms += lease_ms // 10
            return await super().hold(name, holder, lease_ms)

    class Sweep(Work):
        async def collect(self, *_: object) -> None:
            nonlocal sweeping, most_sweeping
            sweeping += 1
            most_sweeping = max(most_sweeping, sweeping)
            until = holds + 100
            while holds < until and most_sweeping == 1:  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0)
            sweeping -= 1
            self.done += 1

    store = Store(lambda: now_ms)
    garbage, others = Sweep(), LosableWork()
    houses = [
        Housekeeper(settings, store, name, others, others, garbage, others, others, others, fenced=dict)  # type: ignore[arg-type]
        for name in ("one", "two", "three")
    ]
    keeping = [asyncio.create_task(house.keep_house()) for house in houses]
    async with asyncio.timeout(20):
        while garbage.done < 3:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.005)
    assert most_sweeping == 1
    for task in keeping:
        task.cancel()
    await asyncio.gather(*keeping, return_exceptions=True)
