"""Metadata and related APIs: the client's rack, the proxy for each broker, and the leaders of diskless partitions.

For a client of rack R (KAFKA-19257, KIP-1163; `racks` finds R):

- every broker's address becomes that broker's listener on a live proxy of R, or on this proxy if R has none;
- classic topics keep leader, replicas and ISR;
- one live broker of R (of any rack if R has none) is the leader of *all* diskless partitions in the response. The
  choice is sticky per client: it stays while that broker lives, whichever proxy the client asks. Replicas and ISR are
  the leader and a broker of each other rack. `leaders` has the other rules that `leader_choice` can name.

The brokers' answer is walked and patched in place (`wire.metadata`), so every version is served and unknown fields
pass. Topics of an answer that came before are not walked again (`wire.metadata_reuse`). With `kip1163_api`, Metadata
v14 and DescribeTopicPartitions v1 are requested from the brokers in the version below.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from proxy.brokers.cluster import Cluster
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import BrokerSlot, Slot
from proxy.config import Fleet as FleetSettings
from proxy.config import Limits
from proxy.creation.auto_creation import FIRST_FLAG_VERSION, AutoCreation, without_creation
from proxy.process.turns import Turns
from proxy.protocol.apis import API_TABLE
from proxy.routing.addresses import Addresses
from proxy.routing.fleet import Fleet
from proxy.routing.racks import Racks, client_key
from proxy.topics.topics import Topics
from proxy.wire import describe_topic_partitions as topic_partitions
from proxy.wire import endpoints
from proxy.wire.metadata import (
    FIRST_RACK_ID,
    AddressOf,
    Broker,
    IsDiskless,
    MetadataRequest,
    build_lower_metadata_request,
    metadata_brokers,
    rewrite_metadata_response,
)
from proxy.wire.metadata_reuse import RewrittenTopics
from proxy.wire.primitives import Buffer
from proxy.wire.steps import Rewrite, Steps, at_once, begin


class RewriteMetadata:
    """Handlers of the APIs whose answers have addresses of brokers and leaders."""

    def __init__(
        self,
        fleet_settings: FleetSettings,
        limits: Limits,
        *,
        addresses: Addresses,
        auto_creation: AutoCreation,
        cluster: Cluster,
        fleet: Fleet,
        racks: Racks,
        topics: Topics,
        turns: Turns,
    ) -> None:
        self._fleet_settings = fleet_settings
        self._addresses = addresses
        self._auto_creation = auto_creation
        self._cluster = cluster
        self._fleet = fleet
        self._racks = racks
        self._topics = topics
        self._turns = turns
        self._rewritten = RewrittenTopics(lambda: limits.metadata_reuse_bytes, lambda: topics.state)

    def metadata(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Handle Metadata (API key 3), all versions. Topics that it creates may have to be diskless."""
        session, version, client_id = client.session, request.api_version, request.client_id
        proposed, rack = version >= FIRST_RACK_ID, None
        if proposed:
            body, rack = build_lower_metadata_request(request.body, version)
            rack = self._racks.named(rack)
            self._racks.learn(session, client_id, rack)

        def rewrite(answer: memoryview) -> Steps[list[Buffer]]:
            if version >= 1:
                self._cluster.learn(metadata_brokers(answer, version))
            return rewrite_metadata_response.steps(
                answer,
                version,
                address_of=self._addresses.of(session, client_id, rack),
                is_diskless=self._is_diskless,
                leaders=self._addresses.diskless_leaders(session, client_id, rack, metadata=True),
                lifelines=self._lifelines(client, client_id, rack),
                reuse=self._rewritten,
            )

        auto_creation = self._auto_creation
        looking = begin(auto_creation.creating_request(request.body, version))
        if isinstance(looking, Generator) and not proposed:
            return self._create_or_forward(client, request, client.open_slot(request), looking, rewrite)
        creating = at_once(looking) if isinstance(looking, Generator) else looking
        if creating is not None and (version < FIRST_FLAG_VERSION or not at_once(auto_creation.is_all_known(creating))):
            return auto_creation.answer(client, request, client.open_slot(request), creating, rewrite)
        if creating is not None:
            body = without_creation(creating)
        if proposed:
            _forward_lower(client, request, body, rewrite)
        elif creating is not None:
            client.forward(request.with_body(body), rewrite)
        else:
            client.forward(request, rewrite)
        return None

    async def _create_or_forward(
        self,
        client: Client,
        request: Request,
        slot: Slot,
        looking: Steps[MetadataRequest | None],
        rewrite: Rewrite,
    ) -> None:
        """Answer a Metadata that names very much, in turns with other work. Raises BrokerUnreachable, ProtocolError."""
        version = request.api_version
        creating = await self._turns.run(looking)
        if creating is not None:
            known = await self._turns.run(self._auto_creation.is_all_known(creating))
            if version < FIRST_FLAG_VERSION or not known:
                await self._auto_creation.answer(client, request, slot, creating, rewrite)
                return
            request = request.with_body(await self._turns.run(without_creation.steps(creating)))
        client.forward_opened(request, slot, rewrite)

    def describe_topic_partitions(self, client: Client, request: Request) -> None:
        """Handle DescribeTopicPartitions (API key 75): the same leaders as Metadata; it carries no address.

        Limits and cursor are the broker's, and so are the partitions of each page.
        """
        version, client_id, rack = request.api_version, request.client_id, None
        if version >= topic_partitions.FIRST_RACK_ID:
            body, rack = topic_partitions.build_lower_request(request.body)
            rack = self._racks.named(rack)
            self._racks.learn(client.session, client_id, rack)

        def rewrite(answer: memoryview) -> list[Buffer] | Steps[list[Buffer]]:
            leaders = self._addresses.diskless_leaders(client.session, client_id, rack, metadata=False)
            is_diskless = self._is_diskless
            if leaders is None or is_diskless is None:
                return [answer]
            return topic_partitions.rewrite_response.steps(answer, version, is_diskless, leaders)

        if version >= topic_partitions.FIRST_RACK_ID:
            _forward_lower(client, request, body, rewrite)
        else:
            client.forward(request, rewrite)

    def find_coordinator(self, client: Client, request: Request) -> None:
        """Handle FindCoordinator (API key 10): coordinators are the brokers' own, at the proxies' addresses."""
        client.forward(request, self._with_addresses(endpoints.rewrite_find_coordinator.steps, client, request))

    def describe_cluster(self, client: Client, request: Request) -> None:
        """Handle DescribeCluster (API key 60)."""
        client.forward(request, self._with_addresses(endpoints.rewrite_describe_cluster, client, request))

    def _with_addresses(
        self,
        walk: Callable[[memoryview, int, AddressOf], list[Buffer] | Steps[list[Buffer]]],
        client: Client,
        request: Request,
    ) -> Rewrite:
        return lambda body: walk(body, request.api_version, self._addresses.of(client.session, request.client_id))

    @property
    def _is_diskless(self) -> IsDiskless | None:
        """None if no topic is."""
        return self._topics.is_diskless if self._topics.all() else None

    def _lifelines(self, client: Client, client_id: str | None, rack: str | None) -> list[Broker]:
        """Return proxies of other racks that the client is to know as further brokers."""
        count, session = self._fleet_settings.lifelines, client.session
        if not count:
            return []
        # Any proxy must find the client's rack by what it says, or a client that asks a lifeline would move there.
        rack = rack or self._racks.on_any_proxy(session, client_id)
        if rack is None:
            return []
        key = client_key(session.host, client_id)
        return self._fleet.lifelines(rack, key, session.listeners, self._cluster.view.brokers)[:count]


def _forward_lower(client: Client, request: Request, body: bytes, rewrite: Rewrite) -> None:
    """Forward the request to the broker with another body, in the highest version that brokers know."""
    frame, version = request.frame, API_TABLE[request.api_key].highest_version
    header = frame[:2].tobytes() + version.to_bytes(2, "big") + frame[4 : len(frame) - len(request.body)].tobytes()
    slot = BrokerSlot(client.answers, request.api_key, request.api_version, request.correlation_id, rewrite)
    client.forward_slot(request._replace(frame=memoryview(header + body)), slot)
