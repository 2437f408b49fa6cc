"""The fleet: leases that creators of diskless topics may rely on, and the addresses that clients get."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import pytest

from proxy.config import Listeners, Settings
from proxy.coordinator.fleet_lease import FleetLease
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.routing.fleet import Fleet, LeaseLapsed, _admin_address
from proxy.topics.topics import Topics
from tests.registry_model import ModelFleetStore, ModelTopicRegistry

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

    async def beat(self, record, lease_ms, *, runs=False):
        if self.down:
            raise CoordinatorUnavailable("no")
        return await super().beat(record, lease_ms, runs=runs)


class Proxy:
    """The registry's copy and the lease of one proxy, tied together as in `proxy.assembly.parts`."""

    def __init__(self, store, registry, **settings) -> None:
        lease = FleetLease()
        self.topics = Topics(registry, lease_runs=lease.runs)
        self.fleet = Fleet(
            settings_of(**settings), store, lease, registry_change=lambda: self.topics.change, reload=self.topics.load
        )

    async def start(self):
        await self.topics.load()
        await self.fleet.begin_serving()
        return self

    def takes_for_classic(self, name):
        """True if a Produce for `name` would go to the brokers now."""
        return self.topics.nothing_diskless or (self.topics.find(name) is None and self.topics.surely_classic(name))


def suspend(monkeypatch):
    """Let the machine sleep for a whole lease. Only one of its clocks goes on meanwhile."""
    read = time.clock_gettime_ns
    slept_ns = {time.CLOCK_BOOTTIME: LEASE_MS * 1_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: read(clock) + slept_ns.get(clock, 0))


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
    """Creators did not wait for it meanwhile: its loaded registry may be old."""
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


async def test_creators_wait_for_proxies_whose_records_the_store_has_lost():
    """It was emptied: the other proxy is cut off from it, and has a lease from before."""
    store, registry = Store(), ModelTopicRegistry()
    await registry.reserve("before", 1, {}, "owner")
    creator = await Proxy(store, registry, port=19092).start()
    other = await Proxy(store, registry, port=19192).start()
    await asyncio.sleep(LEASE_MS / 2000)
    for proxy in (creator, other):
        await proxy.fleet.beat()
    store.empty()
    version = await registry.reserve("orders", 1, {}, "owner")
    await creator.topics.load()
    newcomer = await Proxy(store, registry, port=19292).start()
    for proxy in (creator, newcomer):
        assert not await proxy.fleet.acknowledged(version)
    assert other.takes_for_classic("orders")
    for _ in range(3):
        await asyncio.sleep(LEASE_MS / 2000)
        for proxy in (creator, newcomer):
            await proxy.fleet.beat()
    assert not other.takes_for_classic("orders")
    for proxy in (creator, newcomer):
        assert await proxy.fleet.acknowledged(version)


class ForgetfulStore(Store):
    """Its registry has lost the changes that proxies say they obey."""

    lost = False

    async def beat(self, record, lease_ms, *, runs=False):
        beaten = await super().beat(record, lease_ms, runs=runs)
        records = tuple(replace(one, registry_version=-1) for one in beaten.records)
        return beaten._replace(records=records) if self.lost else beaten


async def test_a_proxy_whose_change_the_registry_lost_reloads_and_acknowledges_nothing():
    store, registry = ForgetfulStore(), ModelTopicRegistry()
    await registry.reserve("orders", 1, {}, "owner")
    proxy = await Proxy(store, registry).start()
    await asyncio.sleep(LEASE_MS / 2000)
    await proxy.fleet.beat()
    await asyncio.sleep(LEASE_MS / 2000)
    assert await proxy.fleet.acknowledged(1), "a lease's time after the first one has come"
    registry.marks[1] = b"another!"
    store.lost = True
    assert not await proxy.fleet.acknowledged(1)
    assert proxy.topics.gone_back
    assert not proxy.takes_for_classic("payments")


async def test_a_proxy_that_has_left_does_not_come_back():
    store, registry = Store(), ModelTopicRegistry()
    leaving = await Proxy(store, registry, port=19192).start()
    other = await Proxy(store, registry, port=19092).start()
    await leaving.fleet.leave()
    await leaving.fleet.beat()
    await other.fleet.beat()
    assert len(other.fleet.records) == 1
    assert not leaving.fleet.lease_runs()


async def test_proxies_behind_the_same_address_are_distinguished():
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


def address_for(fleet, node, rack, client="client"):
    """Return the address of a broker that a client of the rack gets."""
    return fleet.listener(node, rack, client, Listeners())


@pytest.mark.parametrize(
    ("admin", "address"),
    [
        ({}, "127.0.0.1:19080"),
        ({"host": "0.0.0.0"}, "rack.kafka.svc:19080"),
        ({"host": "0.0.0.0", "advertised_host": "10.0.0.7"}, "10.0.0.7:19080"),
        ({"host": "::", "advertised_host": "fd00::7"}, "[fd00::7]:19080"),
        ({"port": 0, "advertised_host": "10.0.0.7"}, ""),
    ],
)
def test_the_admin_port_is_registered_if_it_leads_to_this_very_proxy(admin, address):
    settings = settings_of(admin=admin)
    listeners = settings.listeners.model_copy(update={"host": "0.0.0.0", "advertised_host": "rack.kafka.svc"})
    assert _admin_address(settings.model_copy(update={"listeners": listeners})) == address


async def test_clients_get_a_proxy_of_their_rack():
    first, second, third = await fleet_of("rack-a", "rack-b", "rack-c")
    assert address_for(first, 2, "rack-a") == ("127.0.0.1", 19104)
    assert address_for(first, 2, "rack-b") == ("127.0.0.1", 19204)
    assert address_for(third, 2, "rack-b") == address_for(second, 2, "rack-b")
    assert set(first.racks) == {"rack-a", "rack-b", "rack-c"}


async def test_clients_of_a_rack_without_live_proxies_get_this_one():
    (fleet,) = await fleet_of("rack-a")
    assert address_for(fleet, 1, "rack-z") == ("127.0.0.1", 19103)


async def test_a_broker_without_listener_is_not_named():
    (fleet,) = await fleet_of("rack-a")
    assert address_for(fleet, 9, "rack-a") is None


async def test_proxies_of_one_rack_share_clients_and_agree_on_it():
    fleets = await fleet_of("rack-a", "rack-a", "rack-b")
    answers = [
        [
            address_for(fleet, node, "rack-a", f"client-{number}")
            for number, node in itertools.product(range(30), (1, 2, 3))
        ]
        for fleet in fleets
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len({address[1] // 100 for address in answers[0] if address}) == 2


async def test_every_client_knows_two_proxies_of_its_rack():
    fleets = await fleet_of("rack-a", "rack-a")
    for number in range(30):
        ports = {address_for(fleets[0], node, "rack-a", f"client-{number}")[1] // 100 for node in (1, 2, 3)}
        assert len(ports) == 2


async def ports_of_everyone(fleets, node, rack):
    """Return, for each of the proxies, the ports that 30 clients get."""
    for fleet in fleets:
        await fleet.beat()
    return [{address_for(fleet, node, rack, f"client-{number}")[1] // 100 for number in range(30)} for fleet in fleets]


async def test_a_proxy_that_ends_is_no_longer_named_even_by_itself_and_keeps_its_lease():
    fleets = await fleet_of("rack-a", "rack-a", "rack-b")
    assert await ports_of_everyone(fleets, 1, "rack-a") == [{191, 192}] * 3
    await fleets[0].end_serving()
    assert await ports_of_everyone(fleets, 1, "rack-a") == [{192}] * 3
    assert fleets[0].lease_runs()
    assert len(fleets[1].records) == 3, "creators of topics wait for it still"
    await fleets[1].end_serving()
    assert await ports_of_everyone(fleets, 1, "rack-a") == [{191, 192}] * 3, "nobody else is there"


async def test_a_proxy_that_starts_is_named_when_it_serves():
    store, registry = Store(), ModelTopicRegistry()
    serving = await Proxy(store, registry, port=19092).start()
    starting = Proxy(store, registry, port=19192)
    await starting.topics.load()
    await starting.fleet.beat()
    assert await ports_of_everyone([serving.fleet, starting.fleet], 1, "rack-a") == [{191}] * 2
    await starting.fleet.begin_serving()
    assert await ports_of_everyone([serving.fleet, starting.fleet], 1, "rack-a") == [{191, 192}] * 2


async def test_ending_while_the_store_is_down_changes_the_addresses_for_its_own_clients():
    store, registry = Store(), ModelTopicRegistry()
    first = await Proxy(store, registry, port=19092).start()
    await Proxy(store, registry, port=19192).start()
    await first.fleet.beat()
    store.down = True
    await first.fleet.end_serving()
    assert {address_for(first.fleet, 1, "rack-a", f"client-{number}")[1] // 100 for number in range(30)} == {192}


async def test_a_port_that_was_bound_while_the_proxy_runs_is_named_at_once_and_by_others_after_a_heartbeat():
    store, registry, bound = Store(), ModelTopicRegistry(), ["1-3"]
    first = await Proxy(store, registry, port=19092).start()
    second = Proxy(store, registry, port=19192)
    second.fleet = Fleet(
        settings_of(port=19192),
        store,
        FleetLease(),
        registry_change=lambda: second.topics.change,
        reload=second.topics.load,
        node_ids=lambda listeners: bound[0],
    )
    await second.start()
    assert second.fleet.listener(12, "rack-a", "client", Listeners()) is None
    bound[0] = "1-3,12"
    second.fleet.take_own_ports()
    assert second.fleet.listener(12, "rack-a", "client", Listeners()) == ("127.0.0.1", 19214)
    assert first.fleet.listener(12, "rack-a", "client", Listeners()) is None
    await second.fleet.beat()
    await first.fleet.beat()
    assert first.fleet.listener(12, "rack-a", "client", Listeners()) == ("127.0.0.1", 19214)


async def test_clients_stay_with_the_name_of_the_listeners_that_they_came_in_by():
    store, registry = Store(), ModelTopicRegistry()
    inner = Listeners(name="tls", bootstrap_port=30999, broker_port_start=30000)
    other = Listeners(name="tls", rack="rack-b", bootstrap_port=31999, broker_port_start=31000)
    proxy = await Proxy(store, registry, additional_listeners=(inner, other)).start()
    assert proxy.fleet.listener(1, "rack-a", "client", inner) == ("127.0.0.1", 30001)
    assert proxy.fleet.listener(1, "rack-b", "client", inner) == ("127.0.0.1", 31001)
    assert proxy.fleet.listener(1, "rack-z", "client", other) == ("127.0.0.1", 31001)
    assert proxy.fleet.listener(1, "rack-b", "client", Listeners()) == ("127.0.0.1", 19103)
    assert proxy.fleet.racks == ("rack-a", "rack-b")


def test_listeners_that_clash_are_rejected():
    with pytest.raises(ValueError, match="exist twice"):
        settings_of(additional_listeners=({"bootstrap_port": 1025, "broker_port_start": 1030},))
    with pytest.raises(ValueError, match="port 19103 is in"):
        settings_of(additional_listeners=({"name": "tls", "bootstrap_port": 19103, "broker_port_start": 1030},))


async def test_a_lease_ends_while_the_machine_is_suspended(monkeypatch):
    """The loop's clock stands still then, and the store's does not."""
    proxy = await Proxy(Store(), ModelTopicRegistry()).start()
    assert proxy.fleet.lease_runs()
    suspend(monkeypatch)
    assert not proxy.fleet.lease_runs()
    assert not proxy.takes_for_classic("orders")


async def test_a_lease_that_ran_out_and_began_again_is_another_one(monkeypatch):
    proxy = await Proxy(Store(), ModelTopicRegistry()).start()
    number = proxy.fleet.lease_number
    await proxy.fleet.beat()
    proxy.fleet.check_lease(number)
    suspend(monkeypatch)
    with pytest.raises(LeaseLapsed):
        proxy.fleet.check_lease(number)
    await proxy.fleet.beat()
    with pytest.raises(LeaseLapsed):
        proxy.fleet.check_lease(number)
    proxy.fleet.check_lease(proxy.fleet.lease_number)


def by_name(rack, port, host=""):
    return Listeners.model_validate(
        {
            "name": "tls",
            "rack": rack,
            "bootstrap_port": port,
            "advertised_host": f"{host or 'bootstrap'}.{rack}.example.com",
            "sni_broker_host": f"{host}broker-{{node_id}}.{rack}.example.com",
            "tls": {"certificate_file": "listener.pem"},
        }
    )


async def test_clients_get_the_name_of_each_broker_at_the_one_port_of_a_rack():
    store, registry = Store(), ModelTopicRegistry()
    first, second = by_name("rack-a", 9092), by_name("rack-b", 9093)
    proxy = await Proxy(store, registry, additional_listeners=(first, second)).start()
    assert proxy.fleet.listener(7, "rack-a", "client", first) == ("broker-7.rack-a.example.com", 9092)
    assert proxy.fleet.listener(70_000, "rack-b", "client", first) == ("broker-70000.rack-b.example.com", 9093)
    lifelines = proxy.fleet.lifelines("rack-a", "client", first, {1})
    assert [(one.host, one.port) for one in lifelines] == [("bootstrap.rack-b.example.com", 9093)]


async def test_proxies_with_names_of_their_own_share_brokers_also_those_that_nobody_listed():
    store, registry = Store(), ModelTopicRegistry()
    here, there = by_name("rack-a", 9092, "one"), by_name("rack-a", 9092, "two")
    proxies = [
        Proxy(store, registry, port=19092 + 100 * number, proxy_id=str(number), additional_listeners=(listeners,))
        for number, listeners in enumerate((here, there))
    ]
    for proxy in [*proxies, *proxies]:
        await proxy.start()
    hosts = [proxies[0].fleet.listener(node, "rack-a", "client", here)[0] for node in range(70_000, 70_004)]
    assert {host[:3] for host in hosts[:2]} == {host[:3] for host in hosts[2:]} == {"one", "two"}
    assert proxies[1].fleet.listener(5, "rack-a", "client", there) == proxies[0].fleet.listener(
        5, "rack-a", "client", here
    )
