"""The schedule of completion: which proxy checks topics that lack replicas, and when; no error ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy.brokers.cluster import ClusterView
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.creation.replication import keeper as module
from proxy.creation.replication.keeper import ReplicationKeeper
from proxy.creation.replication.reassignments import ReassignmentsRefused
from proxy.wire.metadata import Broker

WAIT_S = 20.0
FOR_EVER_S = 3600.0


class Parts:
    """Completion, store of leases and cluster."""

    def __init__(self) -> None:
        self.rounds = 0
        self.lost = 0
        self.lease = True
        self.failure: Exception | None = None
        self.brokers = {1: Broker(1, "", 0, "a")}

    @property
    def view(self) -> ClusterView:
        return ClusterView(self.brokers)

    async def complete(self) -> None:
        self.rounds += 1
        if self.failure is not None:
            raise self.failure

    def lease_lost(self) -> None:
        self.lost += 1

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        if self.lease is None:
            raise CoordinatorUnavailable("away")
        return self.lease

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 (nothing announces it)
                await asyncio.sleep(0.001)


@pytest.fixture
async def parts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(module, "_POLL_S", 0.001)
    made: Any = Parts()
    yield made
    for task in getattr(made, "tasks", ()):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def start(parts: Any, interval_s: float) -> asyncio.Task[None]:
    keeper = ReplicationKeeper(parts, parts, "me", SimpleNamespace(view=parts.view), interval_s=interval_s)  # type: ignore[arg-type]
    keeper._cluster = parts
    task = asyncio.get_running_loop().create_task(keeper.keep_completing())
    parts.tasks = [task]
    return task


async def test_checks_run_once_per_interval_and_when_a_broker_joins_or_leaves(parts: Any) -> None:
    start(parts, FOR_EVER_S)
    await parts.until(lambda: parts.rounds == 1)
    for rounds, brokers in ((2, {**parts.brokers, 2: Broker(2, "", 0, "b")}), (3, dict(parts.brokers))):
        parts.brokers = brokers
        await parts.until(lambda r=rounds: parts.rounds == r)


async def test_again_after_the_interval(parts: Any) -> None:
    start(parts, 0.001)
    await parts.until(lambda: parts.rounds >= 3)


async def test_only_with_the_lease(parts: Any) -> None:
    parts.lease = False
    start(parts, 0.001)
    await parts.until(lambda: parts.lost >= 3)
    parts.lease = None
    lost = parts.lost
    await parts.until(lambda: parts.lost >= lost + 3)
    assert parts.rounds == 0
    parts.lease = True
    await parts.until(lambda: parts.rounds >= 1)


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (BrokerUnreachable("away"), "topics_stay_under_replicated"),
        (CoordinatorUnavailable("away"), "topics_stay_under_replicated"),
        (ReassignmentsRefused("not now", rights=False), "topics_stay_under_replicated"),
        (ValueError("odd"), "replication_keeper_broken"),
    ],
)
async def test_a_failure_is_reported_once_and_retried(parts: Any, failure: Exception, event: str) -> None:
    parts.failure = failure
    with structlog.testing.capture_logs() as logged:
        task = start(parts, 0.001)
        await parts.until(lambda: parts.rounds >= 3)
        assert [entry["event"] for entry in logged] == [event]
        parts.failure = None
        rounds = parts.rounds
        await parts.until(lambda: parts.rounds >= rounds + 3)
        parts.failure = failure
        rounds = parts.rounds
        await parts.until(lambda: parts.rounds >= rounds + 3)
        assert [entry["event"] for entry in logged] == [event] * 2
    assert not task.done()


async def test_brokers_that_come_and_go_don_t_wear_it_out(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds both for slow checks and for missing rights."""
    both = {**parts.brokers, 2: Broker(2, "", 0, "b")}

    async def slow() -> None:
        parts.rounds += 1
        await asyncio.sleep(0.1)
        if parts.failure is not None:
            raise parts.failure

    monkeypatch.setattr(parts, "complete", slow)
    loop = asyncio.get_running_loop()
    start(parts, FOR_EVER_S)
    await parts.until(lambda: parts.rounds == 1)
    began_s = loop.time()
    parts.brokers = both
    await parts.until(lambda: parts.rounds == 2)
    assert loop.time() - began_s >= 0.3
    parts.failure = ReassignmentsRefused("no right", rights=True)
    await asyncio.sleep(0.2)
    parts.brokers = {1: Broker(1, "", 0, "a")}
    await asyncio.sleep(0.6)
    assert parts.rounds == 2


async def test_missing_rights_are_reported_with_a_remedy_and_retried_slowly(parts: Any) -> None:
    parts.failure = ReassignmentsRefused("no right", rights=True)
    with structlog.testing.capture_logs() as logged:
        start(parts, 0.001)
        await parts.until(lambda: parts.rounds == 1)
        await asyncio.sleep(0.05)
        assert parts.rounds == 1
    (entry,) = logged
    assert "Alter" in entry["remedy"]
