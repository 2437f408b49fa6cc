"""Topic names and IDs from clients need the brokers' confirmation before they take a place for long."""

from __future__ import annotations

import pytest

from proxy.accounting.topic_names import TopicNames
from proxy.process.turns import Turns
from proxy.telemetry.stats import OTHER_TOPICS, UNKNOWN_TOPIC, Stats
from proxy.topics import classic as classic_module
from proxy.topics.topics import Topics
from tests.registry_model import ModelTopicRegistry
from tests.support.named_topics import NamedTopics

ORDERS, GONE = b"o" * 16, b"g" * 16
WAY = "classic", "produce", "rack-a", "rack-b"


class World:
    """The confirming part, the stats that it confirms for, and a clock."""

    def __init__(self, brokers: NamedTopics) -> None:
        self.now_s = 0.0
        self.lease_runs = True
        self.stats = Stats()
        self.topics = Topics(ModelTopicRegistry(), lease_runs=lambda: self.lease_runs, now=lambda: self.now_s)
        self.names = TopicNames(self.stats, self.topics, brokers.ask, lambda: self.now_s, Turns(0.001))

    def produced(self, *topics: str | bytes) -> None:
        for topic in topics:
            self.stats.count_records(*WAY, topic, 1)

    @property
    def counted(self) -> dict[str, int]:
        return {name: size for (*_, name), size in self.stats.record_bytes.items()}


async def test_a_topic_is_confirmed_only_once() -> None:
    brokers = NamedTopics({"orders": ORDERS})
    world = World(brokers)
    for _ in range(2):
        world.produced("orders", ORDERS)
        await world.names.confirm()
    assert world.counted == {"orders": 4}
    assert sorted(brokers.asked, key=str) == [ORDERS, "orders"]


async def test_a_topic_that_brokers_do_not_know_for_a_while_is_unknown() -> None:
    brokers = NamedTopics({})
    world = World(brokers)
    world.produced("orders", "invented", GONE)
    await world.names.confirm()
    assert world.counted == {}, "brokers hear of a new topic one after the other"
    brokers.there = {"orders": ORDERS}
    world.now_s = 9.9
    await world.names.confirm()
    assert world.counted == {"orders": 1}
    world.now_s = 10.0
    await world.names.confirm()
    assert world.counted == {"orders": 1, UNKNOWN_TOPIC: 2}
    assert not world.stats.unsettled_bytes


async def test_brokers_that_do_not_answer_deny_no_topic() -> None:
    brokers = NamedTopics({"orders": ORDERS})
    world = World(brokers)
    world.produced("orders")
    brokers.away = True
    for world.now_s in (0.0, 1_000.0):
        await world.names.confirm()
    brokers.away = False
    await world.names.confirm()
    assert world.counted == {"orders": 1}


async def test_a_name_that_is_hidden_from_the_proxy_is_counted_under_that_name() -> None:
    world = World(NamedTopics({}, hidden=("secret",)))
    world.produced("secret")
    await world.names.confirm()
    assert world.counted == {"secret": 1}


async def test_invented_ids_evict_no_topic_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_module, "_MAX_SEEN_CLASSIC", 100)
    monkeypatch.setattr(classic_module, "_MAX_UNCONFIRMED", 50)
    world = World(NamedTopics({"orders": ORDERS}))
    await world.topics.load()
    for topic in ("orders", ORDERS):
        assert world.topics.is_read_as_classic(topic)
    await world.names.confirm()
    for number in range(1_000):
        assert world.topics.is_read_as_classic(number.to_bytes(16, "big"))
        if number % 100 == 0:
            await world.names.confirm()
    assert world.topics.is_read_as_classic("seen at last")
    world.lease_runs = False
    assert world.topics.is_read_as_classic("orders")
    assert world.topics.is_read_as_classic(ORDERS)
    assert world.topics.classic.was_noted("seen at last")
    assert not world.topics.is_read_as_classic((3).to_bytes(16, "big"))


async def test_many_topics_are_confirmed_in_steps() -> None:
    there = {f"t{number}": number.to_bytes(16, "big") for number in range(1, 251)}
    world = World(NamedTopics(there))
    world.produced(*list(there)[:150], *list(there.values())[150:200])
    await world.names.confirm()
    assert len(world.counted) == 200
    assert OTHER_TOPICS not in world.counted


async def test_without_a_lease_names_in_use_are_confirmed_and_recreated_topics_are_not_sure() -> None:
    brokers = NamedTopics({"orders": ORDERS, "gone": GONE})
    world = World(brokers)
    await world.topics.load()
    for name in ("orders", "gone", "late"):
        assert world.topics.is_read_as_classic(name)
    await world.names.confirm()
    world.lease_runs = False
    brokers.there = {"orders": ORDERS, "gone": b"x" * 16, "late": b"y" * 16}
    for world.now_s in range(1, 100):  # type: ignore[assignment]
        assert world.topics.surely_classic("orders")
        await world.names.confirm()
    assert not world.topics.surely_classic("gone")
    await world.names.confirm()
    assert not world.topics.surely_classic("gone")
    assert not world.topics.surely_classic("late"), "the brokers did not know it while the lease ran"
    brokers.away = True
    world.now_s += 11.0
    assert not world.topics.surely_classic("orders")
