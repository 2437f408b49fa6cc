"""Reservations that several proxies settle, or that their living owner could not see through."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from proxy import reservations
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.reservations import Reservations
from proxy.topics import Topics
from proxy.wire.metadata import MetadataTopic
from tests.coordinator_model import ModelCoordinator, ModelTopicRegistry

TOPIC_ID = b"1" * 16


class Settling(Reservations):
    """The brokers know a shadow of two partitions, or none."""

    exists = True

    async def shadow(self, name: str) -> MetadataTopic | None:
        return MetadataTopic(0, name, TOPIC_ID, 2, -1) if self.exists else None


class Registry(ModelTopicRegistry):
    """Can't be reached for the next calls."""

    failures = 0

    async def activate(self, name: str, topic_id: bytes, partitions: int) -> int:
        self._try()
        return await super().activate(name, topic_id, partitions)

    async def remove(self, name: str, topic_id: bytes = b"") -> int:
        self._try()
        return await super().remove(name, topic_id)

    def _try(self) -> None:
        if self.failures:
            self.failures -= 1
            raise CoordinatorUnavailable("away")


def settling(registry: Registry) -> Settling:
    context: Any = SimpleNamespace(
        coordinator=ModelCoordinator(),
        topics=Topics(registry, lease_runs=lambda: True),
        fleet=SimpleNamespace(records={"owner": None, "other": None}, identity="owner"),
        settings=SimpleNamespace(fleet=SimpleNamespace(lease_ms=0)),
        now=asyncio.get_running_loop().time,
    )
    return Settling(context)


async def sweep(one: Settling) -> None:
    """Some dozen rounds of the sweep."""
    sweeping = asyncio.create_task(one.keep_settling())
    for _ in range(100):
        await asyncio.sleep(0)
    sweeping.cancel()


def states(registry: Registry) -> list[str]:
    return [topic.state for topic in registry.topics.values()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "_SWEEP_S", 0.0)


async def test_undoing_leaves_alone_what_another_proxy_has_opened() -> None:
    registry = Registry()
    one, late = settling(registry), settling(registry)
    await registry.reserve("a", 2, {}, "gone")
    await one.settle("a", 0.0)
    late.exists = False  # its broker had not heard of the shadow yet
    await late.settle("a", 0.0)
    assert states(registry) == ["live"]


async def test_what_its_living_owner_could_not_undo_is_undone_later() -> None:
    registry = Registry()
    one = settling(registry)
    one.exists = False
    await registry.reserve("a", 2, {}, "owner")
    await one._context.topics.load()
    registry.failures = 2
    await one.undo("a")
    await sweep(one)
    assert states(registry) == []


async def test_what_its_living_owner_could_not_open_is_opened_later() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 2, {}, "owner")
    await one._context.topics.load()
    registry.failures = 2
    with pytest.raises(CoordinatorUnavailable):
        await one.open("a", TOPIC_ID, 2)
    one.leave("a")
    await sweep(one)
    assert states(registry) == ["live"]


async def test_a_topic_that_has_not_grown_with_its_shadow_grows_later() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 1, {}, "owner")
    await one.open("a", TOPIC_ID, 1)
    one.leave("a")
    await sweep(one)
    assert registry.topics["a"].partitions == 2


async def test_what_somebody_else_is_about_to_see_through_is_let_be() -> None:
    registry = Registry()
    one = settling(registry)
    one.exists = False
    one.leave("a")  # an earlier attempt
    await registry.reserve("a", 2, {}, "other")
    one.leave("b")
    await registry.reserve("b", 2, {}, "owner")
    one.take_up("b")
    await one._context.topics.load()
    await sweep(one)
    assert states(registry) == ["reserved", "reserved"]
