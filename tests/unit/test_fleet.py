"""The fleet: leases that creators of diskless topics may rely on, and the addresses that clients are told."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.fleet import Fleet
from proxy.topics import Topics
from tests.coordinator_model import ModelFleetStore, ModelTopicRegistry

LEASE_MS = 100


def settings_of(rack="rack-a", port=19092, nodes="1-3", **others):
    return Settings(
        rack=rack,
        listeners={"bootstrap_port": port, "broker_port_start": port + 10, "broker_node_ids": nodes},
        brokers={"bootstrap": ["127.0.0.1:9092"]},
        redis={"url": "redis://127.0.0.1:6379/0"},
        storage={"url": "file:///nowhere"},
        fleet={"heartbeat_interval_ms": 10, "lease_ms": LEASE_MS},
        **others,
    )


class Store(ModelFleetStore):
    """A fleet store that may be down."""

    down = False

    async def beat(self, record, lease_ms):
        if self.down:
            raise CoordinatorUnavailable("no")
        return await super().beat(record, lease_ms)


class Proxy:
    """The registry's copy and the lease of one proxy, tied together as in `proxy.context`."""

    def __init__(self, store, registry, **settings) -> None:
        self.topics = Topics(registry, lease_runs=lambda: self.fleet.lease_runs())
        self.fleet = Fleet(
            settings_of(**settings), store, registry_version=lambda: self.topics.version, reload=self.topics.load
        )

    async def start(self):
        await self.topics.load()
        await self.fleet.beat()
        return self

    def takes_for_classic(self, name):
        """Whether a Produce for `name` would go to the brokers now."""
        return self.topics.nothing_diskless or (self.topics.find(name) is None and self.topics.surely_classic(name))


async def lapse(proxy):
    await asyncio.sleep(LEASE_MS / 1000)
    assert not proxy.fleet.lease_runs()


async def test_the_lease_runs_from_a_heartbeat_on_and_ends():
    proxy = Proxy(Store(), ModelTopicRegistry())
    assert not proxy.fleet.lease_runs()
    await proxy.start()
    assert proxy.fleet.lease_runs()
    await lapse(proxy)
    assert not proxy.takes_for_classic("orders")


async def test_a_heartbeat_that_fails_renews_nothing():
    store = Store()
    proxy = await Proxy(store, ModelTopicRegistry()).start()
    store.down = True
    await lapse(proxy)
    with pytest.raises(CoordinatorUnavailable):
        await proxy.fleet.beat()
    assert not proxy.fleet.lease_runs()


async def test_a_version_is_acknowledged_when_every_live_proxy_obeys_it():
    store, registry = Store(), ModelTopicRegistry()
    creator = await Proxy(store, registry, port=19092).start()
    other = await Proxy(store, registry, port=19192).start()
    version = await registry.reserve("orders", 1, {}, "owner")
    await creator.topics.load()
    assert not await creator.fleet.acknowledged(version)
    await other.topics.load()
    await other.fleet.beat()
    assert await creator.fleet.acknowledged(version)


async def test_a_proxy_whose_lease_ran_out_reloads_before_it_is_sure_again():
    """Creators did not wait for it meanwhile: what it has loaded may be old."""
    store, registry = Store(), ModelTopicRegistry()
    sleeper = await Proxy(store, registry, port=19192).start()
    store.down = True
    await lapse(sleeper)
    store.down = False
    creator = await Proxy(store, registry, port=19092).start()
    version = await registry.reserve("orders", 1, {}, "owner")
    await creator.topics.load()
    assert await creator.fleet.acknowledged(version), "the shadow topic may be made from now on"
    await sleeper.fleet.beat()
    assert not sleeper.takes_for_classic("orders")


async def test_a_proxy_that_has_left_does_not_come_back():
    store, registry = Store(), ModelTopicRegistry()
    leaving = await Proxy(store, registry, port=19192).start()
    other = await Proxy(store, registry, port=19092).start()
    await leaving.fleet.leave()
    await leaving.fleet.beat()
    await other.fleet.beat()
    assert len(other.fleet.records) == 1
    assert not leaving.fleet.lease_runs()


async def test_proxies_behind_the_same_address_are_told_apart():
    """Sidecars: every pod's proxy is 127.0.0.1 to its own clients."""
    store, registry = Store(), ModelTopicRegistry()
    creator = await Proxy(store, registry).start()
    other = await Proxy(store, registry).start()
    version = await registry.reserve("orders", 1, {}, "owner")
    await creator.topics.load()
    await other.fleet.beat()
    assert not await creator.fleet.acknowledged(version)


async def fleet_of(*racks):
    store, registry = Store(), ModelTopicRegistry()
    proxies = [
        Proxy(store, registry, rack=rack, port=19092 + 100 * number, proxy_id=f"{rack}-{number}")
        for number, rack in enumerate(racks)
    ]
    for proxy in [*proxies, *proxies]:
        await proxy.start()
    return [proxy.fleet for proxy in proxies]


async def test_clients_are_told_a_proxy_of_their_rack():
    first, second, third = await fleet_of("rack-a", "rack-b", "rack-c")
    assert first.listener(2, "rack-a", "client") == ("127.0.0.1", 19104)
    assert first.listener(2, "rack-b", "client") == ("127.0.0.1", 19204)
    assert third.listener(2, "rack-b", "client") == second.listener(2, "rack-b", "client")
    assert set(first.racks()) == {"rack-a", "rack-b", "rack-c"}


async def test_where_a_rack_has_no_live_proxy_it_is_this_one():
    (fleet,) = await fleet_of("rack-a")
    assert fleet.listener(1, "rack-z", "client") == ("127.0.0.1", 19103)


async def test_a_broker_without_listener_is_not_named():
    (fleet,) = await fleet_of("rack-a")
    assert fleet.listener(9, "rack-a", "client") is None


async def test_proxies_of_one_rack_share_clients_and_agree_on_it():
    fleets = await fleet_of("rack-a", "rack-a", "rack-b")
    told = [
        [fleet.listener(node, "rack-a", f"client-{number}") for number, node in itertools.product(range(30), (1, 2, 3))]
        for fleet in fleets
    ]
    assert told[0] == told[1] == told[2]
    assert len({address[1] // 100 for address in told[0] if address}) == 2
