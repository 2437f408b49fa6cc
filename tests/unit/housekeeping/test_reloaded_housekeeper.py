"""Housekeeping uses the current settings: a reload may change its intervals, and what applies without brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy.brokers.broker_defaults import DefaultsRefused, RetentionDefaults
from proxy.config import Settings
from proxy.housekeeping import housekeeper
from proxy.housekeeping.housekeeper import Housekeeper


class Work:
    """Stands for any part of the work; counts calls and records their arguments."""

    def __init__(self) -> None:
        self.done = 0
        self.given = list[Any]()

    def __getattr__(self, name: str) -> Any:
        async def work(*given: object) -> None:
            self.done += 1
            self.given += given

        return work


def settings() -> Settings:
    made = Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},
        redis={"url": "redis://127.0.0.1:1"},
        storage={"url": "file:///nowhere"},
        default_retention_ms=1_000,
    )
    return made.model_copy(deep=True)


async def hold(*_: object) -> bool:
    return True


async def test_a_shorter_interval_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    made, garbage, others = settings(), Work(), Work()
    fleet: Any = SimpleNamespace(hold=hold)
    house = Housekeeper(made, fleet, "me", others, others, garbage, others, others, others, fenced=dict)  # type: ignore[arg-type]
    keeping = asyncio.create_task(house.keep_house())
    for _ in range(20):
        await asyncio.sleep(0)
    assert garbage.done == 0, "it is due in half a minute"
    made.garbage.__dict__["interval_ms"] = 10
    async with asyncio.timeout(60):
        while not garbage.done:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.005)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


class Shadows(Work):
    async def decides(self, cluster_id: str) -> bool:
        return cluster_id == "ours"


async def test_the_fallback_of_brokers_that_refuse_is_that_of_now_and_others_have_no_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> RetentionDefaults:
        raise DefaultsRefused("no")

    monkeypatch.setattr(housekeeper, "retention_defaults", refuse)
    made, retention, others = settings(), Work(), Work()
    fleet: Any = SimpleNamespace(hold=hold)
    cluster: Any = SimpleNamespace(cluster_id="ours")
    house = Housekeeper(made, fleet, "me", cluster, retention, others, Shadows(), others, others, fenced=dict)  # type: ignore[arg-type]
    await house._retain()
    cluster.cluster_id = "another"
    await house._retain()
    cluster.cluster_id = "ours"
    made.__dict__["default_retention_ms"] = 2_000
    await house._retain()
    assert retention.given == [RetentionDefaults(1_000, -1), RetentionDefaults(2_000, -1)]


async def test_nothing_expires_by_age_while_the_clocks_are_far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def defaults_of(*_: object) -> RetentionDefaults:
        return RetentionDefaults(1_000, -1)

    monkeypatch.setattr(housekeeper, "retention_defaults", defaults_of)
    made, retention, others = settings(), Work(), Work()
    ahead_ms = 0
    house = Housekeeper(
        made,
        SimpleNamespace(hold=hold),  # type: ignore[arg-type]
        "me",
        SimpleNamespace(cluster_id="ours"),  # type: ignore[arg-type]
        retention,  # type: ignore[arg-type]
        others,  # type: ignore[arg-type]
        Shadows(),  # type: ignore[arg-type]
        others,  # type: ignore[arg-type]
        others,  # type: ignore[arg-type]
        fenced=dict,
        store_ahead_ms=lambda: ahead_ms,
    )
    most_ms = housekeeper.CLOCKS_APART_MS
    with structlog.testing.capture_logs() as logged:
        for ahead_ms, done in ((most_ms, 1), (8 * 86_400_000, 1), (-most_ms - 1, 1), (0, 2)):  # noqa: B007 (by `house`)
            await house._retain()
            assert retention.done == done
    assert [line["event"] for line in logged] == ["clocks_differ"]
