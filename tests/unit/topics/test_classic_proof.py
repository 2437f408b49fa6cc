"""While the lease is out, a topic is classic if a broker had its ID before the registry was read without its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from proxy.coordinator.clock import running_ms
from proxy.coordinator.fleet_lease import FleetLease
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import RegistrySnapshot
from proxy.process.turns import Turns
from proxy.topics.classic import TopicReference
from proxy.topics.classic_proof import ClassicProof
from proxy.topics.topics import Topics
from tests.registry_model import ModelTopicRegistry
from tests.support.named_topics import NamedTopics

ORDERS, AUDIT, OTHER = b"o" * 16, b"a" * 16, b"x" * 16
LEASE_MS = 5_000


class World:
    """A proxy whose lease has run out, a broker, and the registry as the journal has it."""

    def __init__(self, **there: bytes) -> None:
        self.now_s = 0.0
        self.lease = FleetLease()
        self.brokers = NamedTopics(there)
        self.registry = ModelTopicRegistry()
        self.topics = Topics(self.registry, lease_runs=self.lease.runs, now=lambda: self.now_s)
        self.before_reading: Callable[[], Awaitable[object]] | None = None
        self.read = 0
        self.proof = ClassicProof(
            self.topics,
            self.lease,
            lease_ms=LEASE_MS,
            ask=self.brokers.ask,
            read_registry=self.read_registry,
            turns=Turns(0.001),
        )

    async def read_registry(self) -> RegistrySnapshot:
        self.read += 1
        if self.before_reading is not None:
            await self.before_reading()
        return await self.registry.load()


async def test_all_topics_of_the_brokers_are_classic_when_the_lease_has_ended() -> None:
    world = World(orders=ORDERS)
    assert not world.topics.surely_classic("orders")
    await world.proof.step()
    assert world.topics.surely_classic("orders")
    assert world.topics.surely_classic(ORDERS)
    assert world.topics.classic.id_of("orders") == ORDERS


@pytest.mark.parametrize("topic", ["orders", ORDERS])
async def test_a_topic_that_comes_later_is_classic_from_its_second_use(topic: TopicReference) -> None:
    world = World()
    await world.proof.step()
    world.brokers.there["orders"] = ORDERS
    assert not world.topics.surely_classic(topic)
    assert world.topics.classic.unknown.is_set()
    await world.proof.step()
    assert world.topics.surely_classic(topic)


async def test_a_reserved_or_live_topic_is_not_proved() -> None:
    world = World(orders=ORDERS, audit=AUDIT)
    await world.registry.reserve("orders", 1, {}, "another")
    await world.registry.reserve("audit", 1, {}, "another")
    await world.registry.activate("audit", AUDIT, 1)
    await world.proof.step()
    for topic in ("orders", ORDERS):
        assert not world.topics.surely_classic(topic)
    assert world.topics.is_diskless("audit", AUDIT)
    assert not world.topics.classic.was_noted(AUDIT)


async def test_a_reservation_that_comes_after_the_brokers_answer_counts() -> None:
    """The ID in the answer is of an older topic. The name may belong to a placeholder topic a moment later."""
    world = World(orders=ORDERS)
    world.before_reading = lambda: world.registry.reserve("orders", 1, {}, "another")
    await world.proof.step()
    assert not world.topics.surely_classic("orders")
    assert not world.topics.surely_classic(ORDERS)


async def test_topics_that_do_not_exist_cost_no_record_of_the_journal() -> None:
    world = World()
    await world.proof.step()
    read = world.read
    for name in ("invented", OTHER):
        assert not world.topics.surely_classic(name)
        await world.proof.step()
    assert world.read == read


async def test_without_the_journal_nothing_is_proved_and_all_is_tried_again() -> None:
    world = World(orders=ORDERS)

    async def away() -> None:
        raise CoordinatorUnavailable("away")

    world.before_reading = away
    with pytest.raises(CoordinatorUnavailable):
        await world.proof.step()
    assert not world.topics.surely_classic("orders")
    world.before_reading = None
    await world.proof.step()
    assert world.topics.surely_classic("orders")


async def test_nothing_is_asked_while_heartbeats_come() -> None:
    world = World(orders=ORDERS)
    world.lease.extend(running_ms() + LEASE_MS, begins=True)
    await world.proof.step()
    assert world.brokers.asked == []
    assert world.read == 0


async def test_a_name_that_nobody_used_for_long_is_asked_for_at_once() -> None:
    world = World(orders=ORDERS)
    await world.proof.step()
    world.now_s = 60.0
    assert not world.topics.surely_classic("orders")
    assert world.topics.classic.stale.is_set()
    assert world.topics.classic.due(100, is_current=False) == ["orders"]
    world.topics.classic.confirm("orders", ORDERS, asked_s=world.now_s, is_current=False)
    assert world.topics.surely_classic("orders")
