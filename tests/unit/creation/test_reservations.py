"""Reservations that several proxies settle, or that their live owner could not finish."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from proxy import config
from proxy.brokers.upstream import BrokerUnreachable
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import TopicNotReserved
from proxy.creation import reservations
from proxy.creation.reservations import Reservations
from proxy.wire.metadata import MetadataTopic
from tests.registry_model import ModelTopicRegistry
from tests.unit.creation.made import reservations_of

TOPIC_ID = b"1" * 16
DELETED_ID = b"0" * 16
FIRST, SECOND = 1, 2


class Settling(Reservations):
    """Two brokers know a placeholder topic of two partitions, or none."""

    exists = True
    first_lags = False
    """True if the broker that is asked first has not heard of the placeholder."""
    first_knows: MetadataTopic | None = None
    """Topic that the first broker knows as long as it lags."""
    looks = 0
    reachable = True
    another = False
    """True if the topic was created without a proxy."""

    async def is_another(self, name: str) -> bool:
        return self.another

    async def shadow(self, name: str, connection: Any = None) -> MetadataTopic | None:
        self.looks += 1
        if not self.reachable:
            raise BrokerUnreachable("away")
        if self.first_lags and (connection is None or connection.node_id == FIRST):
            return self.first_knows
        return MetadataTopic(0, name, TOPIC_ID, 2, -1) if self.exists else None


class Registry(ModelTopicRegistry):
    """Can't be reached for the next calls."""

    failures = 0

    async def activate(self, name: str, topic_id: bytes, partitions: int) -> int:
        self._try()
        return await super().activate(name, topic_id, partitions)

    async def remove(self, name: str, topic_id: bytes = b"", owner: str = "") -> int:
        self._try()
        return await super().remove(name, topic_id, owner)

    def _try(self) -> None:
        if self.failures:
            self.failures -= 1
            raise CoordinatorUnavailable("away")


def settling(registry: Registry, identity: str = "owner", *, late_ms: int = 0) -> Settling:
    fleet = SimpleNamespace(records={"owner": None, "other": None}, identity=identity)
    settings = config.Fleet.model_construct(lease_ms=0, create_topic_timeout_ms=late_ms)
    cluster = SimpleNamespace(
        view=SimpleNamespace(brokers={FIRST: None, SECOND: None}),
        connection_to=lambda node_id: SimpleNamespace(node_id=node_id, close=lambda: None),
    )
    return reservations_of(Settling, registry, fleet=fleet, settings=settings, cluster=cluster)


async def sweep(one: Settling) -> None:
    """Some dozen rounds of the sweep."""
    await one._topics.load()
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
    assert await one.settle("a", 0.0)
    await late.undo("a", "gone")
    assert states(registry) == ["live"]


async def test_undoing_leaves_alone_what_another_proxy_has_reserved_meanwhile() -> None:
    registry = Registry()
    late = settling(registry)
    await registry.reserve("a", 2, {}, "owner")
    await registry.remove("a")  # the others took the owner for dead
    await registry.reserve("a", 2, {}, "other")
    await late.undo("a")
    assert states(registry) == ["reserved"]


@pytest.mark.parametrize("exists", [False, True])
async def test_a_reservation_that_its_live_owner_could_not_undo_is_undone_later(exists: bool) -> None:
    """It is undone even if there is a topic of that name by then: this topic is not the placeholder."""
    registry = Registry()
    one = settling(registry)
    one.exists = exists
    await registry.reserve("a", 2, {}, "owner")
    await one._topics.load()
    registry.failures = 2
    await one.undo("a")
    await sweep(one)
    assert states(registry) == []
    await registry.reserve("a", 2, {}, "owner")
    one.take_up("a")
    one.leave("a")
    one.exists = True
    await sweep(one)
    assert states(registry) == ["live"]


async def test_a_reservation_that_its_live_owner_could_not_open_is_opened_later() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 2, {}, "owner")
    await one._topics.load()
    registry.failures = 2
    with pytest.raises(CoordinatorUnavailable):
        await one.open("a", TOPIC_ID, 2)
    one.leave("a")
    await sweep(one)
    assert states(registry) == ["live"]


async def test_a_finished_reservation_of_this_proxy_that_came_back_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the topic's opening was accepted: it may have had records."""
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 2, {}, "owner")
    create_logs = AsyncMock(wraps=one._coordinator.create_logs)
    monkeypatch.setattr(one._coordinator, "create_logs", create_logs)
    await sweep(one)
    assert states(registry) == ["live"]
    create_logs.assert_awaited_once_with(TOPIC_ID, range(2), growing=True)


async def test_a_dead_owners_reservation_is_opened_when_all_brokers_know_the_placeholder() -> None:
    registry = Registry()
    one = settling(registry)
    one.first_lags = True
    await registry.reserve("a", 2, {}, "gone")
    await sweep(one)
    assert states(registry) == ["reserved"], "it is neither opened nor undone"
    one.first_lags = False
    await sweep(one)
    assert states(registry) == ["live"]


@pytest.mark.parametrize("exists", [False, True])
async def test_no_reservation_gets_the_id_of_a_deleted_topic_that_a_broker_still_knows(exists: bool) -> None:
    registry = Registry()
    one, other = settling(registry), settling(registry)
    for lagging in (one, other):
        lagging.exists, lagging.first_lags = exists, True
        lagging.first_knows = MetadataTopic(0, "a", DELETED_ID, 5, -1)
    await registry.reserve("a", 2, {}, "gone")
    assert not await one.settle("a", 0.0)
    await sweep(other)
    assert states(registry) == ["reserved"]
    one.first_knows = None
    assert not await one.settle("a", 0.0)
    one.first_lags, one.exists = False, True
    assert await one.settle("a", 0.0)
    assert registry.topics["a"].topic_id == TOPIC_ID


async def test_a_placeholder_whose_id_is_known_is_taken_from_any_broker_and_no_other_topic_is() -> None:
    registry = Registry()
    one = settling(registry)
    one.first_lags, one.first_knows = True, MetadataTopic(0, "a", DELETED_ID, 5, -1)
    await registry.reserve("a", 2, {}, "owner")
    assert not await one.settle("a", 0.0, b"9" * 16)
    assert await one.settle("a", 0.0, TOPIC_ID)
    assert (registry.topics["a"].topic_id, registry.topics["a"].partitions) == (TOPIC_ID, 2)


async def test_a_dead_owners_reservation_is_undone_only_when_its_placeholder_cannot_appear() -> None:
    registry = Registry()
    patient, done = settling(registry, late_ms=60_000), settling(registry)
    patient.exists = done.exists = False
    await registry.reserve("a", 2, {}, "gone")
    await sweep(patient)
    assert (states(registry), patient.looks > 1) == (["reserved"], True)
    done.reachable = False
    await sweep(done)
    assert (states(registry), done.looks > 1) == (["reserved"], True)
    done.reachable = True
    await sweep(done)
    assert states(registry) == []


async def test_a_topic_that_was_created_without_a_proxy_does_not_become_diskless() -> None:
    registry = Registry()
    one = settling(registry)
    one.another = True
    await registry.reserve("a", 2, {}, "gone")
    assert not await one.settle("a", 0.0)
    assert states(registry) == ["reserved"], "its owner leaves it to the sweep"
    await sweep(one)
    assert states(registry) == []


async def test_settling_leaves_a_reservation_whose_placeholder_is_not_visible() -> None:
    registry = Registry()
    one = settling(registry)
    one.exists = False
    await registry.reserve("a", 2, {}, "owner")
    assert not await one.settle("a", 0.0)
    assert states(registry) == ["reserved"]


async def test_only_one_action_at_a_time_runs_for_a_name() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 2, {}, "gone")
    assert one.begin("a")
    assert not one.begin("a")
    await sweep(one)
    assert (states(registry), one.looks) == (["reserved"], 0)
    one.end("a")
    await sweep(one)
    assert states(registry) == ["live"]


async def test_no_logs_stay_of_a_topic_that_may_not_be_opened() -> None:
    registry = Registry()
    one = settling(registry)
    with pytest.raises(TopicNotReserved):
        await one.open("a", TOPIC_ID, 2)
    assert await one._coordinator.describe(TOPIC_ID, [0, 1]) == [None, None]


async def test_a_topic_that_has_not_grown_with_its_placeholder_grows_later() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 1, {}, "owner")
    await one.open("a", TOPIC_ID, 1)
    one.leave("a")
    await sweep(one)
    assert registry.topics["a"].partitions == 2


async def test_a_topic_does_not_grow_with_another_one_of_its_name() -> None:
    registry = Registry()
    one = settling(registry)
    await registry.reserve("a", 1, {}, "owner")
    await one.open("a", b"2" * 16, 1)
    one.leave("a")
    await sweep(one)
    assert (registry.topics["a"].partitions, one.looks) == (1, 2)
    assert await one._coordinator.describe(TOPIC_ID, [0]) == [None]
