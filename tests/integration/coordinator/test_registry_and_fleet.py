"""The topic registry and the fleet store, the model and the real ones."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface_fleet import FleetStore, ListenersRecord, ProxyRecord, ProxySums
from proxy.coordinator.interface_registry import (
    NO_CHANGE,
    DisklessTopic,
    RegistrySnapshot,
    TopicNotReserved,
    TopicReserved,
)
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import FLEET_PREFIX
from tests.registry_model import ModelFleetStore, ModelTopicRegistry

ONE, TWO = b"1" * 16, b"2" * 16
NONE = bytes(16)
CONFIGS = {"retention.ms": "-1", "cleanup.policy": "delete", "Ünicode": "✔"}


@pytest.fixture(params=["model", "real", "view"])
def registry(request: pytest.FixtureRequest):
    if request.param == "model":
        return ModelTopicRegistry()
    if request.param == "view":
        return request.getfixturevalue("make_registry_view")()
    return RedisTopicRegistry(request.getfixturevalue("client"), request.getfixturevalue("settings"))


@pytest.fixture(params=["model", "real"])
def fleet(request: pytest.FixtureRequest):
    return ModelFleetStore() if request.param == "model" else RedisFleetStore(request.getfixturevalue("client"))


def proxy_record(name: str, version: int = 3) -> ProxyRecord:
    listeners = ListenersRecord("default", "rack-a", "10.0.0.1", 19092, 19100, "1-9")
    return ProxyRecord(name, "rack-a", (listeners,), version)


async def test_an_empty_registry_has_version_0(registry) -> None:
    assert await registry.load() == RegistrySnapshot(0, ())


async def test_the_life_of_a_topic(registry) -> None:
    assert await registry.reserve("b", 3, CONFIGS, "owner") == 1
    assert await registry.reserve("a", 1, {}, "öwner") == 2
    other = DisklessTopic("a", NONE, 1, "reserved", {}, "öwner")
    reserved = DisklessTopic("b", NONE, 3, "reserved", CONFIGS, "owner")
    assert await registry.load() == RegistrySnapshot(2, (other, reserved))
    assert await registry.activate("b", ONE, 4) == 3
    assert await registry.load() == RegistrySnapshot(3, (other, DisklessTopic("b", ONE, 4, "live", CONFIGS, "owner")))
    assert await registry.remove("a") == 4
    assert await registry.begin_delete("b") == 5
    assert await registry.load() == RegistrySnapshot(5, (DisklessTopic("b", ONE, 4, "deleting", CONFIGS, "owner"),))
    assert await registry.remove("b") == 6
    assert await registry.load() == RegistrySnapshot(6, ())


async def test_only_its_own_reservation_is_removed_by_an_owner(registry) -> None:
    await registry.reserve("a", 1, {}, "öwner")
    assert await registry.remove("a", NONE, "another") == 1
    assert await registry.remove("a", NONE, "öwner") == 2
    assert await registry.load() == RegistrySnapshot(2, ())


async def test_the_topics_belong_to_the_first_cluster_that_is_named(registry) -> None:
    assert await registry.belongs_to("first") is True
    assert await registry.belongs_to("second") is False
    assert await registry.belongs_to("first") is True


async def test_a_name_is_taken_once(registry) -> None:
    taken = await asyncio.gather(*[registry.reserve("a", 1, {}, str(n)) for n in range(10)], return_exceptions=True)
    assert [result for result in taken if not isinstance(result, TopicReserved)] == [1]
    assert (await registry.load()).version == 1


async def test_only_what_is_reserved_becomes_live(registry) -> None:
    with pytest.raises(TopicNotReserved):
        await registry.activate("a", ONE, 1)
    await registry.reserve("a", 1, {}, "owner")
    await registry.activate("a", ONE, 1)
    with pytest.raises(TopicNotReserved):
        await registry.activate("a", TWO, 1)
    await registry.begin_delete("a")
    with pytest.raises(TopicNotReserved):
        await registry.activate("a", ONE, 1)
    assert (await registry.load()).version == 3


async def test_a_call_without_a_change_raises_no_version(registry) -> None:
    await registry.reserve("a", 1, CONFIGS, "owner")
    assert await registry.activate("a", ONE, 1) == 2
    assert await registry.activate("a", ONE, 1) == 2
    assert await registry.activate("a", ONE, 5) == 3
    assert await registry.begin_delete("a") == 4
    assert await registry.begin_delete("a") == 4
    assert await registry.begin_delete("unknown") == 4
    assert await registry.remove("unknown") == 4


async def test_only_the_named_topic_is_removed(registry) -> None:
    await registry.reserve("a", 1, {}, "owner")
    assert await registry.remove("a", ONE) == 1
    assert await registry.activate("a", ONE, 1) == 2
    assert await registry.remove("a", NONE) == 2
    assert await registry.begin_delete("a", TWO) == 2
    assert await registry.remove("a", TWO) == 2
    assert [topic.state for topic in (await registry.load()).topics] == ["live"]
    assert await registry.begin_delete("a", ONE) == 3
    assert await registry.remove("a", ONE) == 4
    await registry.reserve("a", 1, {}, "owner")
    assert await registry.remove("a", NONE) == 6


async def test_changes_are_announced(registry) -> None:
    async with aclosing(registry.changes()) as changes:
        assert (await anext(changes)).version == 0
        await registry.reserve("a", 1, {}, "owner")
        await registry.remove("unknown")
        await registry.remove("a")
        assert [(await anext(changes)).version, (await anext(changes)).version] == [1, 2]


async def test_the_version_is_announced_again_after_a_broken_connection(client: Redis, settings) -> None:
    registry = RedisTopicRegistry(client, settings)
    async with aclosing(registry.changes()) as changes:
        assert (await anext(changes)).version == 0
        await client.client_kill_filter(_type="pubsub")
        await registry.reserve("a", 1, {}, "owner")
        assert (await anext(changes)).version == 1


async def test_records_whose_lease_runs(fleet) -> None:
    first, second = proxy_record("a"), proxy_record("b")
    assert (await fleet.beat(second, 60_000)).records == (second,)
    assert (await fleet.beat(first, 60_000)).records == (first, second)
    newer = proxy_record("b", 4)
    assert (await fleet.beat(newer, 60_000)).records == (first, newer)
    await fleet.leave("a")
    await fleet.leave("a")
    assert (await fleet.beat(newer, 60_000)).records == (newer,)


async def test_sums_come_back_as_they_were_sent(fleet) -> None:
    record = replace(proxy_record("a"), sums=ProxySums(1, 2, 3, 4, 5, 6, 7))
    assert [one.sums for one in (await fleet.beat(record, 60_000)).records] == [record.sums]
    assert [one.record.sums for one in await fleet.look()] == [record.sums]


async def test_an_observer_sees_all_and_changes_nothing(fleet) -> None:
    first, second = proxy_record("a"), replace(proxy_record("b"), version="1.2.3", admin="10.0.0.2:19080")
    assert await fleet.look() == ()
    await fleet.beat(second, 3_600_000)
    await fleet.beat(first, 600_000)
    await fleet.beat(proxy_record("gone"), 5)
    await asyncio.sleep(0.05)
    seen = await fleet.look()
    assert [one.record for one in seen] == [first, second]
    assert 0 < seen[0].lease_left_ms <= 600_000 < seen[1].lease_left_ms <= 3_600_000


async def test_a_lease_ends(fleet) -> None:
    await fleet.beat(proxy_record("a"), 5)
    await asyncio.sleep(0.02)
    assert (await fleet.beat(proxy_record("b"), 60_000)).records == (proxy_record("b"),)


async def has_all_leases(fleet: FleetStore, record: ProxyRecord, *, runs: bool = False) -> bool:
    complete_for_ms = (await fleet.beat(record, 60_000, runs=runs)).complete_for_ms
    assert complete_for_ms >= 0
    return complete_for_ms > 60_000


async def test_leases_that_a_store_may_have_lost(fleet, client: Redis) -> None:
    """Creators wait for them, see `Fleet.acknowledged`."""

    async def empty() -> None:
        if isinstance(fleet, ModelFleetStore):
            fleet.empty()
        await client.flushall()

    assert await has_all_leases(fleet, proxy_record("first", 0)), "nobody can have missed a change"
    assert await has_all_leases(fleet, proxy_record("first"), runs=True)
    assert await has_all_leases(fleet, proxy_record("second"))
    await fleet.leave("first")
    await fleet.leave("second")
    assert await has_all_leases(fleet, proxy_record("third")), "all had left"
    await empty()
    assert not await has_all_leases(fleet, proxy_record("fourth"))
    assert not await has_all_leases(fleet, proxy_record("third"), runs=True)
    await empty()
    assert not await has_all_leases(fleet, proxy_record("third", 0), runs=True), "it was there before"
    assert not await has_all_leases(fleet, proxy_record("fifth", 0))


async def test_leases_that_a_server_may_have_lost(client: Redis) -> None:
    """It was promoted, or its clock was set back."""
    fleet, third = RedisFleetStore(client), proxy_record("third", 0)
    await fleet.beat(third, 60_000)
    key = f"{FLEET_PREFIX}since"
    known = await client.get(key)
    assert known is not None
    assert len(known) > 8
    assert await has_all_leases(fleet, third, runs=True)
    await client.hdel(f"{FLEET_PREFIX}leases", "third")
    assert not await has_all_leases(fleet, third, runs=True), "the store has lost its newest writes"
    for changed in (known[:-1] + b"?", b"\x7f" + known[1:]):
        await client.set(key, known)
        assert await has_all_leases(fleet, third, runs=True)
        await client.set(key, changed)
        assert not await has_all_leases(fleet, third, runs=True)


async def test_a_proxy_that_starts_does_not_vouch_for_a_store_that_was_emptied(client: Redis, settings) -> None:
    """Its first heartbeat comes before it has loaded the registry, which was rebuilt."""
    registry, fleet = RedisTopicRegistry(client, settings), RedisFleetStore(client)
    await registry.reserve("before", 1, {}, "owner")
    assert not await has_all_leases(fleet, proxy_record("starting", NO_CHANGE.version))


async def test_one_holds_a_lease_until_it_ends(fleet) -> None:
    assert await fleet.hold("work", "a", 60_000)
    assert not await fleet.hold("work", "b", 60_000)
    assert await fleet.hold("other work", "b", 60_000)
    assert await fleet.hold("work", "a", 5)
    await asyncio.sleep(0.02)
    assert await fleet.hold("work", "b", 60_000)


async def test_a_record_of_a_newer_release_is_read(client: Redis) -> None:
    fleet = RedisFleetStore(client)
    await fleet.beat(proxy_record("a"), 60_000)
    packed = await client.hget("diskless:{registry}:fleet:leases", "a")
    assert packed is not None
    await client.hset("diskless:{registry}:fleet:leases", "a", packed.replace(b'{"', b'{"new_field": 1, "'))
    assert (await fleet.beat(proxy_record("b"), 60_000)).records == (proxy_record("a"), proxy_record("b"))
