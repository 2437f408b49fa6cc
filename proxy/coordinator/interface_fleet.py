"""The interface of the fleet's heartbeats and leases, whatever store they are on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ListenersRecord:
    """One range of ports of a live proxy, as clients get it."""

    name: str
    rack: str
    """Rack of the clients that it serves."""
    host: str
    bootstrap_port: int
    broker_port_start: int
    node_ids: str
    """Node IDs, in the form of the setting `broker_node_ids`."""
    sni_broker_host: str = ""
    """Pattern of brokers' host names, as the setting; empty if each broker has a port."""


class ProxySums(NamedTuple):
    """Present rates of one process, and their cost: averages over some ten seconds, as whole numbers.

    Every heartbeat carries them, and its answer has those of all processes, so they are few and short.
    """

    produced: int = 0
    """Record bytes a second that clients produce."""
    fetched: int = 0
    """Record bytes a second that clients fetch."""
    crossed: int = 0
    """Record bytes a second that cross racks; a byte counts once for each border."""
    crossing_cost: int = 0
    """Cost of these crossings, in millionths of a US dollar an hour."""
    saved: int = 0
    """Savings, in millionths of a US dollar an hour."""
    storage_cost: int = 0
    """Cost of requests to object storage, in millionths of a US dollar an hour."""
    connections: int = 0
    """Number of open connections of clients."""


@dataclass(frozen=True, slots=True)
class ProxyRecord:
    """The report of a live proxy about itself, in each heartbeat."""

    proxy_id: str
    rack: str
    listeners: tuple[ListenersRecord, ...]
    """Empty for the storage process of a proxy with workers, which has no clients."""
    registry_version: int
    """Newest version that it obeys; -1 before the first load, or if the registry does not have the change that it
    obeys."""
    serving: bool = True
    """True if it accepts new clients: not while it starts, and not while it drains."""
    version: str = ""
    """Version of its release; empty if the release does not report it."""
    admin: str = ""
    """Address of its admin port, as `host:port`, for the operator's tools; empty if it does not report one."""
    registry_mark: str = ""
    """Mark of the change that it obeys, in hex digits; empty if it has none."""
    sums: ProxySums | None = None
    """Present rates; None if the process has not looked twice yet, or if its release does not report them."""


class SeenProxy(NamedTuple):
    """A live proxy, as a program that is not a proxy sees it."""

    record: ProxyRecord
    lease_left_ms: int
    """Milliseconds until the lease ends, by the store's clock."""


class Beaten(NamedTuple):
    """The answer to a heartbeat."""

    records: tuple[ProxyRecord, ...]
    """All records whose lease runs, the sender's too, ordered by proxy ID."""
    complete_for_ms: int
    """Milliseconds since when the store has had the records of all proxies whose lease runs, without a break."""


class FleetStore(Protocol):
    """Heartbeats of all proxies. Every method may raise CoordinatorUnavailable."""

    async def beat(self, record: ProxyRecord, lease_ms: int, *, runs: bool = False) -> Beaten:
        """Renew the record's lease (by the store's clock). `runs`: the lease runs, by the proxy's own clock.

        Fields that a newer release added are left out. If the registry does not have the change that a proxy obeys, the
        `registry_version` of its record is -1.
        """

    async def look(self) -> tuple[SeenProxy, ...]:
        """Return all proxies whose lease runs, ordered by proxy ID; nothing is written."""

    async def leave(self, proxy_id: str) -> None:
        """End the lease at once."""

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        """Take or renew a lease on work that one proxy does for all; False if another proxy has it."""
