"""Topic names and IDs from clients need the brokers' confirmation before they take a place for long."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

from proxy.accounting.topic_names import TopicNames
from proxy.brokers.upstream import BrokerUnreachable
from proxy.protocol.api_keys import METADATA
from proxy.telemetry.stats import OTHER_TOPICS, UNKNOWN_TOPIC, Stats
from proxy.topics import classic as classic_module
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request
from tests.registry_model import ModelTopicRegistry

ORDERS, GONE = b"o" * 16, b"g" * 16
WAY = "classic", "produce", "rack-a", "rack-b"


class Brokers:
    """A broker that knows some topics, IDs by name, and hides others from the proxy."""

    def __init__(self, there: dict[str, bytes], hidden: tuple[str, ...] = ()) -> None:
        self.there, self.hidden = there, hidden
        self.asked: list[str | bytes] = []
        self.away = False

    async def ask(self, api_key: int, version: int, body: Any) -> memoryview:
        if self.away:
            raise BrokerUnreachable("away")
        wanted: Any = read_request(METADATA, version, memoryview(body))
        names = {topic_id: name for name, topic_id in self.there.items()}
        topics = []
        for one in wanted.topics:
            topic_id = None if one.topic_id is None else one.topic_id.bytes
            self.asked.append(topic_id if one.name is None else str(one.name))
            name = names.get(topic_id) if one.name is None else str(one.name)
            known = self.there.get(name or "")
            error = ErrorCode.none
            if known is None:
                error = ErrorCode.unknown_topic_id if one.name is None else ErrorCode.unknown_topic_or_partition
            if name in self.hidden:
                error = ErrorCode.topic_authorization_failed
            told_id = known or topic_id
            topics.append(
                MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=None if told_id is None else UUID(bytes=told_id),
                    partitions=(),
                )
            )
        broker = MetadataResponseBroker(node_id=1, host="broker", port=9092, rack=None)
        response = MetadataResponse(
            throttle_time=milliseconds(0), brokers=(broker,), controller_id=1, topics=tuple(topics)
        )
        return memoryview(encode(response))


class World:
    """The confirming part, the stats that it confirms for, and a clock."""

    def __init__(self, brokers: Brokers) -> None:
        self.now_s = 0.0
        self.lease_runs = True
        self.stats = Stats()
        self.topics = Topics(ModelTopicRegistry(), lease_runs=lambda: self.lease_runs, now=lambda: self.now_s)
        self.names = TopicNames(self.stats, self.topics, brokers.ask, lambda: self.now_s)

    def produced(self, *topics: str | bytes) -> None:
        for topic in topics:
            self.stats.count_records(*WAY, topic, 1)

    @property
    def counted(self) -> dict[str, int]:
        return {name: size for (*_, name), size in self.stats.record_bytes.items()}


async def test_a_topic_is_confirmed_only_once() -> None:
    brokers = Brokers({"orders": ORDERS})
    world = World(brokers)
    for _ in range(2):
        world.produced("orders", ORDERS)
        await world.names.confirm()
    assert world.counted == {"orders": 4}
    assert sorted(brokers.asked, key=str) == [ORDERS, "orders"]


async def test_a_topic_that_brokers_do_not_know_for_a_while_is_unknown() -> None:
    brokers = Brokers({})
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
    brokers = Brokers({"orders": ORDERS})
    world = World(brokers)
    world.produced("orders")
    brokers.away = True
    for world.now_s in (0.0, 1_000.0):
        await world.names.confirm()
    brokers.away = False
    await world.names.confirm()
    assert world.counted == {"orders": 1}


async def test_a_name_that_is_hidden_from_the_proxy_is_counted_under_that_name() -> None:
    world = World(Brokers({}, hidden=("secret",)))
    world.produced("secret")
    await world.names.confirm()
    assert world.counted == {"secret": 1}


async def test_invented_ids_evict_no_topic_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_module, "_MAX_SEEN_CLASSIC", 100)
    monkeypatch.setattr(classic_module, "_MAX_UNCONFIRMED", 50)
    world = World(Brokers({"orders": ORDERS}))
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
    world = World(Brokers(there))
    world.produced(*list(there)[:150], *list(there.values())[150:200])
    await world.names.confirm()
    assert len(world.counted) == 200
    assert OTHER_TOPICS not in world.counted


async def test_without_a_lease_names_in_use_are_confirmed_and_recreated_topics_are_not_sure() -> None:
    brokers = Brokers({"orders": ORDERS, "gone": GONE})
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
