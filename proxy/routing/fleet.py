"""The live proxies of each rack: heartbeats of this proxy, and the addresses for clients of any rack."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

import structlog

from proxy import __version__
from proxy.config import Listeners, Settings, parse_node_ids
from proxy.config.values import broker_host
from proxy.coordinator.clock import running_ms
from proxy.coordinator.fleet_lease import FleetLease
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_fleet import FleetStore, ListenersRecord, ProxyRecord, ProxySums, SeenProxy
from proxy.coordinator.interface_registry import RegistryChange
from proxy.routing.sticky import sticky_order
from proxy.wire.metadata import Broker

log = structlog.get_logger()

_HEARD_AFTER_HEARTBEATS = 1.5
"""Every other proxy has beaten by then, and with its heartbeat has read ours."""

_EVERYWHERE = ("0.0.0.0", "::", "")
"""Hosts that mean every address; they can't be used to find a proxy."""
_FIRST_LIFELINE, _LIFELINE_IDS = 1_000_000_000, 1 << 24


class _Ports(NamedTuple):
    """One range of ports of a live proxy, or its one port if names select the broker (`sni_broker_host`)."""

    record: ListenersRecord
    nodes: frozenset[int]

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """Return host and port that stand for a broker; None if none do."""
        record = self.record
        if record.sni_broker_host:
            return broker_host(record.sni_broker_host, node_id), record.bootstrap_port
        return (record.host, record.broker_port_start + node_id) if node_id in self.nodes else None


class _Served(NamedTuple):
    """The live proxies' listeners of one name for one rack."""

    addresses: tuple[str, ...]
    ports: dict[str, _Ports]
    """Ports by bootstrap address."""
    turns: dict[int, int]
    """The place of each node ID among all of them."""

    @classmethod
    def of(cls, ports: dict[str, _Ports]) -> _Served:
        nodes = sorted(set().union(*(one.nodes for one in ports.values())))
        return cls(tuple(sorted(ports)), ports, {node: turn for turn, node in enumerate(nodes)})


def _admin_address(settings: Settings) -> str:
    """Return the address of the admin port; empty if the system picks the port."""
    admin = settings.admin
    if not admin.port:
        return ""
    host = admin.advertised_host or (settings.listeners.client_host if admin.host in _EVERYWHERE else admin.host)
    return f"[{host}]:{admin.port}" if ":" in host else f"{host}:{admin.port}"


class LeaseLapsed(Exception):
    """The lease ran out since: other proxies may have undone what this one has reserved."""


class Fleet:
    """This proxy's view of all live proxies, and its own lease.

    `registry_change` is the newest change that this proxy obeys. `reload` reads the registry again. That is done before
    a lease begins, because nobody waited for this proxy while it had none. `node_ids` are the brokers that have a port
    here. `sums` returns the present rates of this process. A process that has no clients reports no listeners.
    """

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        lease: FleetLease,
        *,
        registry_change: Callable[[], RegistryChange],
        reload: Callable[[], Awaitable[None]],
        node_ids: Callable[[Listeners], str] = lambda listeners: listeners.broker_node_ids,
        sums: Callable[[], ProxySums | None] = lambda: None,
        has_clients: bool = True,
    ) -> None:
        self._settings = settings
        self.identity = f"{settings.identity}#{secrets.token_hex(4)}"
        """Identity of this very process: proxies may share an address (sidecars), and a restarted proxy has another
        identity."""
        self._reload = reload
        self._node_ids = node_ids
        self._sums = sums
        self._listeners = settings.all_listeners if has_clients else ()
        self._left = False
        self.not_joined = ""
        """Why this proxy sends no heartbeats yet; empty if it does."""
        self._serving = False
        self._store = store
        self._lease = lease
        self._registry_change = registry_change
        self._obeys_the_registry = True
        """Whether the registry has the change that this proxy obeys, as of the last heartbeat."""
        self._served: dict[tuple[str, str], _Served] = {}
        """Addresses by name of the listeners and rack of their clients."""
        self.racks: tuple[str, ...] = ()
        """Racks that a live proxy serves; each heartbeat brings a new tuple."""
        self._beating = asyncio.Lock()
        self._complete_from_ms = 0
        """Time from which on every proxy whose lease runs has a record in the store, by `running_ms`."""
        self.records: dict[str, ProxyRecord] = {}
        self._take((self._record(),))

    def lease_runs(self) -> bool:
        """Return True if creators of diskless topics still wait for this proxy's acknowledgement."""
        return self._lease.runs()

    @property
    def lease_number(self) -> int:
        """Number of the newest lease, see `FleetLease`."""
        return self._lease.number

    def check_lease(self, number: int) -> None:
        """Raise LeaseLapsed unless the lease of this `lease_number` has run without a break until now."""
        if not self.lease_runs() or number != self.lease_number:
            raise LeaseLapsed("this proxy's lease had ended meanwhile, and other proxies may have freed the name")

    async def begin_serving(self) -> None:
        """Let clients learn about this proxy from now on."""
        self._serving = True
        with suppress(CoordinatorUnavailable):  # heartbeats say it later
            await self.beat()

    async def end_serving(self) -> None:
        """Name this proxy to clients no more if there is another one; return when the other proxies know it.

        The lease continues: creators of topics still wait for the registry state that this proxy goes by.
        """
        self._serving = False
        with suppress(CoordinatorUnavailable):
            await self.beat()
        self._take(tuple(self.records.values()))
        if any(record.serving for record in self.records.values()):
            await asyncio.sleep(_HEARD_AFTER_HEARTBEATS * self._settings.fleet.heartbeat_interval_ms / 1000)

    async def beat(self) -> None:
        """One heartbeat; it acknowledges the registry version that is loaded. Raises CoordinatorUnavailable."""
        async with self._beating:
            if self._left:
                return
            if self.not_joined:
                raise CoordinatorUnavailable(self.not_joined)
            began_ms = running_ms()
            lease_ms = self._settings.fleet.lease_ms
            said = self._record()
            beaten = await self._store.beat(said, lease_ms, runs=self.lease_runs())
            self._complete_from_ms = running_ms() + lease_ms - beaten.complete_for_ms
            self._take(beaten.records)
            self._obeys_the_registry = all(
                one.registry_version == said.registry_version for one in beaten.records if one.proxy_id == self.identity
            )
            lapsed = not self.lease_runs()
            if lapsed or not self._obeys_the_registry:
                await self._reload()
            self._lease.extend(began_ms + lease_ms, begins=lapsed)

    async def keep_beating(self) -> None:
        """Heartbeats forever; failures are logged once until they end."""
        failing = False
        while True:
            await asyncio.sleep(self._settings.fleet.heartbeat_interval_ms / 1000)
            try:
                await self.beat()
                if failing:
                    log.info("coordinator_reachable_again")
                failing = False
            except CoordinatorUnavailable as error:
                if not failing:
                    log.warning("heartbeat_failed", reason=str(error), remedy="start the store or fix redis.url")
                failing = True

    async def look(self) -> tuple[SeenProxy, ...]:
        """All live proxies, and how long each one's lease still runs. Raises CoordinatorUnavailable."""
        return await self._store.look()

    async def leave(self) -> None:
        """Be gone at once, and for good, rather than when the lease ends."""
        self._left = True
        self._lease.end()
        if self.not_joined:
            return
        with suppress(CoordinatorUnavailable):
            async with self._beating:
                await self._store.leave(self.identity)

    def take_own_ports(self) -> None:
        """Name this proxy to clients for the brokers that have a port here now; others hear of it by a heartbeat."""
        self._take(tuple(self.records.values()))

    async def acknowledged(self, version: int) -> bool:
        """Return whether every live proxy obeys that registry version. Raises CoordinatorUnavailable.

        False for a lease's time after the store has lost the proxies' records: one that is cut off from it may still
        have a lease.
        """
        await self.beat()
        return (
            running_ms() >= self._complete_from_ms
            and self._obeys_the_registry
            and all(record.registry_version >= version for record in self.records.values())
        )

    def listener(self, node_id: int, rack: str, client: str, came_by: Listeners) -> tuple[str, int] | None:
        """Return host and port that stand for a broker, for a client of `rack`; None if no proxy has a port for it.

        They are of listeners with the name that the client came in by, of the live proxies that serve its rack. If
        there are none, they are of proxies that serve the rack of the port that the client came to. Several proxies
        share a client's brokers in turn, in the client's own order of the proxies: a client that loses one proxy still
        knows another one.
        """
        served = self._served.get((came_by.name, rack)) or self._served[came_by.name, self._settings.rack_of(came_by)]
        addresses = served.addresses
        if len(addresses) > 1:
            addresses = sticky_order(client, addresses)
        turn = served.turns.get(node_id, node_id)
        for number in range(len(addresses)):
            address = served.ports[addresses[(turn + number) % len(addresses)]].address_of(node_id)
            if address is not None:
                return address
        return None

    def lifelines(self, rack: str, client: str, came_by: Listeners, brokers: Collection[int]) -> list[Broker]:
        """Return bootstrap ports of live proxies that serve only other racks, as brokers with IDs that no broker has.

        They are in the client's own order. The IDs follow from the addresses, so that every proxy gives the same ones.
        They are far from brokers' IDs and from those that the Java client derives for coordinators (2147483647 less the
        ID).
        """
        own = self._served.get((came_by.name, rack))
        others: dict[str, str] = {}
        for (name, served_rack), served in sorted(self._served.items()):
            if name == came_by.name and served_rack != rack:
                others |= {
                    address: served_rack for address in served.addresses if own is None or address not in own.ports
                }
        node_ids: dict[int, str] = {}
        for address in sorted(others):
            node_id = _FIRST_LIFELINE + crc32(address.encode()) % _LIFELINE_IDS
            while node_id in node_ids or node_id in brokers:
                node_id += 1
            node_ids[node_id] = address
        if not others:
            return []
        by_address = {address: node_id for node_id, address in node_ids.items()}
        lifelines = []
        for address in sticky_order(client, tuple(sorted(others))):
            host, _, port = address.rpartition(":")
            lifelines.append(Broker(by_address[address], host, int(port), others[address]))
        return lifelines

    def _record(self) -> ProxyRecord:
        settings, obeyed = self._settings, self._registry_change()
        return ProxyRecord(
            proxy_id=self.identity,
            rack=settings.rack,
            listeners=tuple(
                ListenersRecord(
                    name=listeners.name,
                    rack=settings.rack_of(listeners),
                    host=listeners.client_host,
                    bootstrap_port=listeners.bootstrap_port,
                    broker_port_start=listeners.broker_port_start,
                    node_ids=self._node_ids(listeners),
                    sni_broker_host=listeners.sni_broker_host,
                )
                for listeners in self._listeners
            ),
            registry_version=obeyed.version,
            registry_mark=obeyed.mark.hex(),
            serving=self._serving,
            version=__version__,
            admin=_admin_address(settings),
            sums=self._sums(),
        )

    def _take(self, records: tuple[ProxyRecord, ...]) -> None:
        everyone = {record.proxy_id: record for record in (*records, self._record())}
        self.records = everyone
        by_others = {
            (listeners.name, listeners.rack)
            for record in everyone.values()
            if record.serving
            for listeners in record.listeners
        }
        served: dict[tuple[str, str], dict[str, _Ports]] = {}
        for record in everyone.values():
            for listeners in record.listeners:
                # Who is starting or ending is named where there is nobody else.
                if not record.serving and (listeners.name, listeners.rack) in by_others:
                    continue
                ports = _Ports(listeners, frozenset(parse_node_ids(listeners.node_ids)))
                # Where clients find a proxy is what they are shared out by, as it stays over a restart.
                address = f"{listeners.host}:{listeners.bootstrap_port}"
                served.setdefault((listeners.name, listeners.rack), {})[address] = ports
        self._served = {key: _Served.of(ports) for key, ports in served.items()}
        self.racks = tuple(sorted({rack for _, rack in served}))
