"""When a diskless topic is deleted because its placeholder topic is gone, and when it must not be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.brokers.broker_metadata import Known, KnownTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.creation.reservations import Reservations
from proxy.housekeeping import shadows as module
from proxy.housekeeping.shadows import LEAST_LOOKS, Shadows
from proxy.topics.topics import Topics
from tests.coordinator_model import ModelCoordinator
from tests.registry_model import ModelTopicRegistry
from tests.unit.creation.made import reservations_of

A, B = b"a" * 16, b"b" * 16


class Brokers:
    """The brokers' knowledge."""

    def __init__(self) -> None:
        self.cluster_id = "ours"
        self.shadows = {A: 1, B: 1}
        """Partitions by topic ID, as known by the broker that is asked first."""
        self.known_to_others: set[bytes] = set()
        self.reachable = True

    async def ask_topics(self, connection: Any, topic_ids: list[bytes]) -> Known:
        topics = {
            topic_id: KnownTopic(topic_id[:1].decode(), topic_id, self.shadows[topic_id])
            for topic_id in topic_ids
            if topic_id in self.shadows
        }
        return Known(self.cluster_id, topics, frozenset(set(topic_ids) - topics.keys()))

    async def denied_by_all(self, cluster: Any, topic_ids: list[bytes]) -> frozenset[bytes]:
        if not self.reachable:
            raise BrokerUnreachable("one of them is away")
        return frozenset(set(topic_ids) - self.shadows.keys() - self.known_to_others)


class House:
    """Two live diskless topics, a and b."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.registry = ModelTopicRegistry()
        self.coordinator = ModelCoordinator()
        self.topics = Topics(self.registry, lease_runs=lambda: True)
        reservations = reservations_of(Reservations, self.registry, topics=self.topics, coordinator=self.coordinator)
        cluster: Any = SimpleNamespace(service=None)
        self.shadows = Shadows(cluster, self.topics, reservations, confirm_s=0.0)

    async def make(self) -> None:
        for topic_id in (A, B):
            name = topic_id[:1].decode()
            await self.registry.reserve(name, 1, {}, "owner")
            await self.coordinator.create_logs(topic_id, [0])
            await self.registry.activate(name, topic_id, 1)
        await self.topics.load()

    async def look(self, times: int = LEAST_LOOKS) -> None:
        for _ in range(times):
            await self.shadows.compare()

    @property
    def live(self) -> list[str]:
        return [topic.name for topic in self.topics.all() if topic.state == "live"]


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> House:
    made = House()
    await made.make()
    monkeypatch.setattr(module, "ask_topics", made.brokers.ask_topics)
    monkeypatch.setattr(module, "denied_by_all", made.brokers.denied_by_all)
    return made


async def test_a_topic_is_deleted_if_every_broker_denies_its_placeholder_at_every_check(house: House) -> None:
    del house.brokers.shadows[A]
    await house.look(LEAST_LOOKS - 1)
    assert house.live == ["a", "b"]
    await house.look(1)
    assert house.live == ["b"]
    assert await house.coordinator.describe(A, [0]) == [None]
    assert await house.coordinator.describe(B, [0]) != [None]


async def test_a_topic_that_one_broker_still_knows_stays(house: House) -> None:
    del house.brokers.shadows[A]
    house.brokers.known_to_others = {A}
    await house.look(3 * LEAST_LOOKS)
    assert house.live == ["a", "b"]


async def test_a_placeholder_that_is_seen_again_restarts_the_count(house: House) -> None:
    del house.brokers.shadows[A]
    await house.look(LEAST_LOOKS - 1)
    house.brokers.shadows[A] = 1
    await house.look(1)
    del house.brokers.shadows[A]
    await house.look(LEAST_LOOKS - 1)
    assert house.live == ["a", "b"]


async def test_a_broker_that_is_away_restarts_the_count(house: House) -> None:
    del house.brokers.shadows[A]
    await house.look(LEAST_LOOKS - 1)
    house.brokers.reachable = False
    with pytest.raises(BrokerUnreachable):
        await house.look(1)
    house.brokers.reachable = True
    await house.look(LEAST_LOOKS - 1)
    assert house.live == ["a", "b"]


async def test_however_often_it_is_looked_the_time_has_to_pass(house: House) -> None:
    house.shadows._confirm_s = 3600.0
    del house.brokers.shadows[A]
    await house.look(10 * LEAST_LOOKS)
    assert house.live == ["a", "b"]


async def test_another_lease_holder_restarts_the_count(house: House) -> None:
    del house.brokers.shadows[A]
    await house.look(LEAST_LOOKS - 1)
    house.shadows.lease_lost()
    await house.look(LEAST_LOOKS - 1)
    assert house.live == ["a", "b"]


async def test_brokers_of_another_cluster_decide_nothing(house: House) -> None:
    await house.look(1)
    house.brokers.cluster_id = "another"
    house.brokers.shadows = {B: 5}
    await house.look(3 * LEAST_LOOKS)
    assert house.live == ["a", "b"]
    assert house.registry.topics["b"].partitions == 1


async def test_brokers_that_know_nothing_at_all_decide_nothing(house: House) -> None:
    house.brokers.shadows = {}
    await house.look(3 * LEAST_LOOKS)
    assert house.live == ["a", "b"]


async def test_a_placeholder_that_has_grown_makes_its_topic_grow(house: House) -> None:
    house.brokers.shadows[A] = 3
    await house.look(1)
    assert house.registry.topics["a"].partitions == 3
    assert None not in await house.coordinator.describe(A, [0, 1, 2])


async def test_a_deletion_that_was_begun_is_ended(house: House) -> None:
    await house.registry.begin_delete("a")
    await house.topics.load()
    await house.look(1)
    assert [topic.name for topic in house.topics.all()] == ["b"]
    assert await house.coordinator.describe(A, [0]) == [None]
