"""The brokers behind the proxy: their addresses and racks, learned from their own Metadata and kept fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog

from proxy.brokers.service import BrokerAccess, ServiceConnection
from proxy.brokers.silent import SilentBrokers
from proxy.brokers.upstream import BrokerConnection, BrokerUnreachable
from proxy.config import Settings, parse_address
from proxy.process.keep_alive import keep_alive
from proxy.process.newest import Newest
from proxy.protocol.api_keys import METADATA
from proxy.wire.errors import ProtocolError
from proxy.wire.metadata import Broker, metadata_brokers, metadata_cluster_id

log = structlog.get_logger()

_METADATA_VERSION = 9
_NO_TOPICS = b"\x01\x00\x00\x00\x00"
"""Metadata v9: an empty list of topics, no auto-creation, no authorized operations, no tagged fields."""
_MAX_RACKS_SEEN = 10_000


class ClusterView(NamedTuple):
    """The live brokers."""

    brokers: dict[int, Broker]

    def with_address(self, address_of: Callable[[int], object | None]) -> ClusterView:
        """Return only the brokers that may be named to clients."""
        return ClusterView({node: broker for node, broker in self.brokers.items() if address_of(node) is not None})


class Cluster:
    """Knows the brokers and connects to them."""

    def __init__(self, settings: Settings, take_brokers: Callable[[Collection[int]], None] = lambda live: None) -> None:
        """`take_brokers` is called with the node IDs of live brokers: at each look, and when they change."""
        self._settings = settings
        self._take_brokers = take_brokers
        self._bootstrap = [parse_address(address) for address in settings.brokers.bootstrap]
        self.view = ClusterView({})
        self.cluster_id = ""
        """ID of the Kafka cluster; empty before the first answer."""
        self.failure: str | None = "not asked yet"
        """Why the brokers can't be reached, for `/readyz`; None when they can."""
        self.access = BrokerAccess(settings)
        self.service = self.connection_to_any(settings.brokers.request_timeout_ms / 1000)
        self.silent = SilentBrokers()
        self.racks_seen: Newest[int, str] = Newest(_MAX_RACKS_SEEN)
        """Racks of brokers that live, or have lived since this process began."""

    async def refresh(self) -> None:
        """Ask the brokers for their list. Raises BrokerUnreachable."""
        try:
            body = await self.service.ask(METADATA, _METADATA_VERSION, _NO_TOPICS)
            self.learn(metadata_brokers(body, _METADATA_VERSION))
            self._take_brokers(self.view.brokers.keys())
            self.cluster_id = metadata_cluster_id(body, _METADATA_VERSION) or self.cluster_id
        except ProtocolError as error:
            self.failure = f"the bootstrap address does not answer as a Kafka broker: {error}"
            raise BrokerUnreachable(self.failure) from error
        except BrokerUnreachable as error:
            self.failure = str(error)
            raise
        self.failure = None

    async def keep_fresh(self) -> None:
        """Refresh forever; failures are logged once until they end."""
        failing = False
        while True:
            await asyncio.sleep(self._settings.brokers.metadata_refresh_ms / 1000)
            try:
                await self.refresh()
                if failing:
                    log.info("brokers_reachable_again")
                failing = False
            except BrokerUnreachable as error:
                if not failing:
                    log.warning("brokers_unreachable", reason=str(error), remedy="start them or fix brokers.bootstrap")
                failing = True

    def learn(self, brokers: list[Broker]) -> None:
        """Take over a list of live brokers that a broker has just answered."""
        live = {broker.node_id: broker for broker in brokers}
        if not live or live == self.view.brokers:
            return
        self.view = ClusterView(live)
        for node, broker in live.items():
            self.racks_seen.pop(node, None)
            if broker.rack:
                self.racks_seen.note(node, broker.rack)
        self._take_brokers(live.keys())

    async def connect(self, node_id: int | None, protocol: BrokerConnection) -> None:
        """Connect to a broker, or to any live broker if `node_id` is None. Raises BrokerUnreachable."""
        if node_id is None:
            failures, cause = [], None
            nodes = {(broker.host, broker.port): node for node, broker in self.view.brokers.items()}
            for host, port in sorted(self._service_addresses(), key=lambda at: nodes.get(at, -1) in self.silent):
                protocol.node_id = nodes.get((host, port))
                try:
                    await self._connect(host, port, protocol)
                    return
                except BrokerUnreachable as error:
                    failures.append(str(error))
                    cause = error.__cause__
            raise BrokerUnreachable("; ".join(failures) or "no broker address is known") from cause
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise BrokerUnreachable(f"broker {node_id} is not alive")
        protocol.node_id = node_id
        await self._connect(broker.host, broker.port, protocol)

    async def _connect(self, host: str, port: int, protocol: BrokerConnection) -> None:
        """For a client, which may leave its connection idle for long, and ask for more than the broker takes."""
        await self.access.connect(host, port, protocol)
        limits, transport = self._settings.limits, protocol.transport
        if transport is not None and not transport.is_closing():
            keep_alive(transport.get_extra_info("socket"), limits)
            transport.set_write_buffer_limits(high=limits.write_buffer_bytes)

    def connection_to_any(self, request_timeout_s: float, *, near_first: bool = True) -> ServiceConnection:
        """Return a service connection to any broker, of the proxy's rack first or last; the caller closes it."""
        return ServiceConnection(
            lambda: self._service_addresses(near_first=near_first),
            self.access,
            request_timeout_s=request_timeout_s,
            max_frame_bytes=2**31 - 1,
        )

    def connection_to(self, node_id: int, request_timeout_s: float | None = None) -> ServiceConnection:
        """Return a service connection of the caller's own to one broker, who closes it; made when it is first used.

        `request_timeout_s` is by default `brokers.request_timeout_ms`.
        """

        def addresses() -> list[tuple[str, int]]:
            broker = self.view.brokers.get(node_id)
            return [(broker.host, broker.port)] if broker is not None else []

        return ServiceConnection(
            addresses,
            self.access,
            request_timeout_s=request_timeout_s or self._settings.brokers.request_timeout_ms / 1000,
            max_frame_bytes=2**31 - 1,
        )

    def rack_of(self, node_id: int | None) -> str:
        """Return a broker's rack, also of one that is down; empty if unknown."""
        return self.racks_seen.get(node_id, "") if node_id is not None else ""

    def distance(self, node_id: int) -> tuple[bool, int]:
        """Return the order in which brokers are asked that are all as good: those of this proxy's rack first."""
        return self.rack_of(node_id) != self._settings.rack, node_id

    def _service_addresses(self, *, near_first: bool = True) -> list[tuple[str, int]]:
        """Brokers of this rack first, then the others, or the other way round; then the bootstrap list."""
        rack = self._settings.rack
        brokers = sorted(self.view.brokers.values(), key=lambda broker: (broker.rack == rack) is not near_first)
        live = [(broker.host, broker.port) for broker in brokers]
        return live + [address for address in self._bootstrap if address not in live]
