"""The interface of the fleet's heartbeats and leases, whatever store they are on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class ListenersRecord:
    """One range of ports of a live proxy, as clients are told of it."""

    name: str
    rack: str
    """Of the clients that it is there for."""
    host: str
    bootstrap_port: int
    broker_port_start: int
    node_ids: str
    """As the setting `broker_node_ids`."""


@dataclass(frozen=True, slots=True)
class ProxyRecord:
    """What a live proxy says of itself with each heartbeat."""

    proxy_id: str
    rack: str
    listeners: tuple[ListenersRecord, ...]
    registry_version: int
    """The newest that it obeys; -1 before the first load, or if the registry does not have the change that it obeys."""
    serving: bool = True
    """Whether it takes new clients: not yet while it starts, no longer when it drains."""
    version: str = ""
    """Of the release; empty where that says none."""
    admin: str = ""
    """Where its admin port is, as `host:port`, for the tools of who operates it; empty where it does not say."""
    registry_mark: str = ""
    """Mark of the change that it obeys, in hex digits; empty if it has none."""


class SeenProxy(NamedTuple):
    """A live proxy as somebody sees it who is none."""

    record: ProxyRecord
    lease_left_ms: int
    """By the store's clock."""


class FleetStore(Protocol):
    """Heartbeats of all proxies. Every method may raise CoordinatorUnavailable."""

    async def beat(self, record: ProxyRecord, lease_ms: int) -> tuple[ProxyRecord, ...]:
        """Renew the record's lease (by the store's clock); return all records whose lease runs, this one too.

        Ordered by proxy ID. Fields that a newer release added are left out. If the registry does not have the change
        that a proxy obeys, the `registry_version` of its record is -1.
        """

    async def look(self) -> tuple[SeenProxy, ...]:
        """All proxies whose lease runs, ordered by proxy ID; nothing is written."""

    async def leave(self, proxy_id: str) -> None:
        """End the lease at once."""

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        """Take or renew a lease on work that one proxy does for all; False where another one has it."""
