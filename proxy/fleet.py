"""Who is alive in which rack: heartbeats of this proxy, and the addresses that clients of any rack are told."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from proxy.config import Settings, parse_node_ids
from proxy.coordinator.interface import CoordinatorUnavailable, FleetStore, ProxyRecord
from proxy.racks import sticky_choice

log = structlog.get_logger()


class Fleet:
    """This proxy's view of all live proxies, and its own lease.

    `registry_version`: the newest that this proxy obeys. `reload`: reads the registry anew; done before a lease begins,
    as nobody waited for this proxy while it had none.
    """

    def __init__(
        self,
        settings: Settings,
        store: FleetStore,
        *,
        registry_version: Callable[[], int],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self.identity = f"{settings.identity}#{secrets.token_hex(4)}"
        """Of this very process: proxies may share an address (sidecars), and one that restarts is another one."""
        self._reload = reload
        self._left = False
        self._store = store
        self._registry_version = registry_version
        self._lease_until_s = 0.0
        self._by_rack: dict[str, tuple[str, ...]] = {}
        """Addresses of live proxies by rack."""
        self._at: dict[str, tuple[ProxyRecord, frozenset[int]]] = {}
        self._beating = asyncio.Lock()
        self.records: dict[str, ProxyRecord] = {}
        self._take((self._record(),))

    def lease_runs(self) -> bool:
        """Whether creators of diskless topics still wait for this proxy's acknowledgement."""
        return asyncio.get_running_loop().time() < self._lease_until_s

    async def beat(self) -> None:
        """One heartbeat; it acknowledges the registry version that is loaded. Raises CoordinatorUnavailable."""
        async with self._beating:
            if self._left:
                return
            began_s = asyncio.get_running_loop().time()
            lease_ms = self._settings.fleet.lease_ms
            self._take(await self._store.beat(self._record(), lease_ms))
            if not self.lease_runs():
                await self._reload()
            self._lease_until_s = began_s + lease_ms / 1000

    async def keep_beating(self) -> None:
        """Heartbeats for ever; failures are logged once until they end."""
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
                    log.warning("heartbeat_failed", reason=str(error), remedy="start the store or mend redis.url")
                failing = True

    async def leave(self) -> None:
        """Be gone at once, and for good, rather than when the lease ends."""
        self._left = True
        self._lease_until_s = 0.0
        with suppress(CoordinatorUnavailable):
            async with self._beating:
                await self._store.leave(self.identity)

    async def acknowledged(self, version: int) -> bool:
        """Whether every live proxy obeys that registry version. Raises CoordinatorUnavailable."""
        await self.beat()
        return all(record.registry_version >= version for record in self.records.values())

    def racks(self) -> tuple[str, ...]:
        """Racks with a live proxy."""
        return tuple(self._by_rack)

    def listener(self, node_id: int, rack: str, client: str) -> tuple[str, int] | None:
        """Host and port that stand for a broker, for a client of `rack`; None where no proxy has a port for it.

        This proxy where it is of that rack or where the rack has no live proxy; otherwise one of the rack's, the
        (client, broker) pairs shared out by rendezvous hashing.
        """
        proxies = self._by_rack.get(rack)
        if rack == self._settings.rack or not proxies:
            proxies = self._by_rack.get(self._settings.rack) or (_address(self._record()),)
        address = proxies[0] if len(proxies) == 1 else sticky_choice(f"{client}\0{node_id}", proxies)
        record, nodes = self._at[address]
        return (record.host, record.broker_port_start + node_id) if node_id in nodes else None

    def _record(self) -> ProxyRecord:
        listeners = self._settings.listeners
        return ProxyRecord(
            proxy_id=self.identity,
            rack=self._settings.rack,
            host=listeners.client_host,
            bootstrap_port=listeners.bootstrap_port,
            broker_port_start=listeners.broker_port_start,
            node_ids=listeners.broker_node_ids,
            registry_version=self._registry_version(),
        )

    def _take(self, records: tuple[ProxyRecord, ...]) -> None:
        everyone = {record.proxy_id: record for record in (*records, self._record())}
        self.records = everyone
        self._at = {
            _address(record): (record, frozenset(parse_node_ids(record.node_ids))) for record in everyone.values()
        }
        by_rack: dict[str, list[str]] = {}
        for address in sorted(self._at):
            by_rack.setdefault(self._at[address][0].rack, []).append(address)
        self._by_rack = {rack: tuple(addresses) for rack, addresses in by_rack.items()}


def _address(record: ProxyRecord) -> str:
    """Where clients find a proxy: what they are shared out by, as it stays over a restart."""
    return f"{record.rack}/{record.host}:{record.bootstrap_port}"
