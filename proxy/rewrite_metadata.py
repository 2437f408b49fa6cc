"""Metadata and related APIs: the client's rack, the proxy for each broker, and the leaders of diskless partitions.

For a client of rack R (KAFKA-19257, KIP-1163; `racks` finds R):

- every broker's address becomes that broker's listener on a live proxy of R, or on this proxy if R has none;
- classic topics keep leader, replicas and ISR;
- one live broker of R (of any rack if R has none) is the leader of *all* diskless partitions in the response. The
  choice is sticky per client: it stays while that broker lives, whichever proxy the client asks. Replicas and ISR are
  the leader and a broker of each other rack. `leaders` has the other rules that `leader_choice` can name.

The brokers' answer is walked and patched in place (`wire.metadata`), so every version is served and unknown fields
pass. With `kip1163_api`, Metadata v14 and DescribeTopicPartitions v1 are requested from the brokers in the version
below.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from proxy.client.request import Request
from proxy.client.slots import BrokerSlot
from proxy.creation.auto_creation import FIRST_FLAG_VERSION, AutoCreation, without_creation
from proxy.protocol.apis import API_TABLE
from proxy.routing.racks import client_key
from proxy.wire import describe_topic_partitions as topic_partitions
from proxy.wire import endpoints
from proxy.wire.metadata import (
    FIRST_RACK_ID,
    Broker,
    IsDiskless,
    MetadataRequest,
    build_lower_metadata_request,
    metadata_brokers,
    rewrite_metadata_response,
)
from proxy.wire.steps import Rewrite, Steps, at_once, begin

if TYPE_CHECKING:
    from proxy.client.client import Client
    from proxy.client.slots import Slot
    from proxy.routing.fleet import Fleet
    from proxy.routing.leaders import LeaderChoice
    from proxy.wire.partition_leaders import Leaders
    from proxy.wire.primitives import Buffer

AddressOf = Callable[[int], "tuple[str, int] | None"]


def address_of(client: Client, client_id: str | None, rack: str | None = None) -> AddressOf:
    """What a client is told as the address of each broker; None for one that no listener stands for.

    `rack` is the one that the request itself names.
    """
    context = client.context
    listener, listeners = context.fleet.listener, client.session.listeners
    rack = rack or context.racks.of(client.session, client_id)
    key = client_key(client.session.host, client_id)
    return lambda node_id: listener(node_id, rack, key, listeners)


def diskless_leaders(
    client: Client, client_id: str | None, rack: str | None = None, *, metadata: bool
) -> Leaders | None:
    """Who leads diskless partitions for this client (`LeaderChoice.leaders`); None where no broker lives."""
    context = client.context
    view = context.cluster.view.with_address(address_of(client, client_id, rack))
    live = tuple(sorted(view.brokers))
    rack = rack or context.racks.of(client.session, client_id)
    in_rack = tuple(node for node in live if view.brokers[node].rack == rack)
    racks = tuple(view.brokers[node].rack for node in live)
    key = client_key(client.session.host, client_id)
    choice: LeaderChoice = context.leader_choice
    return choice.leaders(key, live, in_rack, metadata=metadata, racks=racks)


def metadata(client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
    """Metadata (API key 3), all versions. What it would create on the way may have to be diskless: `auto_creation`."""
    context, version, client_id = client.context, request.api_version, request.client_id
    proposed, rack = version >= FIRST_RACK_ID, None
    if proposed:
        body, rack = build_lower_metadata_request(request.body, version)
        rack = context.racks.named(rack)
        context.racks.learn(client.session, client_id, rack)

    def rewrite(answer: memoryview) -> Steps[list[Buffer]]:
        if version >= 1:
            context.cluster.learn(metadata_brokers(answer, version))
        return rewrite_metadata_response.steps(
            answer,
            version,
            address_of=address_of(client, client_id, rack),
            is_diskless=_is_diskless(client),
            leaders=diskless_leaders(client, client_id, rack, metadata=True),
            lifelines=_lifelines(client, client_id, rack),
        )

    auto_creation: AutoCreation = context.auto_creation
    looking = begin(auto_creation.creating_request(request.body, version))
    if isinstance(looking, Generator) and not proposed:
        return _create_or_forward(client, request, client.open_slot(request), looking, rewrite)
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
    client: Client,
    request: Request,
    slot: Slot,
    looking: Steps[MetadataRequest | None],
    rewrite: Rewrite,
) -> None:
    """Answer a Metadata that names very much, in turns with other work. Raises BrokerUnreachable and ProtocolError."""
    context, version = client.context, request.api_version
    creating = await context.turns.run(looking)
    if creating is not None:
        known = await context.turns.run(context.auto_creation.is_all_known(creating))
        if version < FIRST_FLAG_VERSION or not known:
            await context.auto_creation.answer(client, request, slot, creating, rewrite)
            return
        request = request.with_body(await context.turns.run(without_creation.steps(creating)))
    client.forward_opened(request, slot, rewrite)


def describe_topic_partitions(client: Client, request: Request) -> None:
    """DescribeTopicPartitions (API key 75): the same leaders as Metadata; it carries no address.

    Limits and cursor are the broker's, and so are the partitions of each page.
    """
    version, client_id, rack = request.api_version, request.client_id, None
    if version >= topic_partitions.FIRST_RACK_ID:
        body, rack = topic_partitions.build_lower_request(request.body)
        rack = client.context.racks.named(rack)
        client.context.racks.learn(client.session, client_id, rack)

    def rewrite(answer: memoryview) -> list[Buffer] | Steps[list[Buffer]]:
        leaders = diskless_leaders(client, client_id, rack, metadata=False)
        is_diskless = _is_diskless(client)
        if leaders is None or is_diskless is None:
            return [answer]
        return topic_partitions.rewrite_response.steps(answer, version, is_diskless, leaders)

    if version >= topic_partitions.FIRST_RACK_ID:
        _forward_lower(client, request, body, rewrite)
    else:
        client.forward(request, rewrite)


def find_coordinator(client: Client, request: Request) -> None:
    """FindCoordinator (API key 10): group and transaction coordinators are the brokers' own, behind our addresses."""
    client.forward(request, _addresses(endpoints.rewrite_find_coordinator.steps, client, request))


def describe_cluster(client: Client, request: Request) -> None:
    """DescribeCluster (API key 60)."""
    client.forward(request, _addresses(endpoints.rewrite_describe_cluster, client, request))


def _addresses(
    walk: Callable[[memoryview, int, AddressOf], list[Buffer] | Steps[list[Buffer]]],
    client: Client,
    request: Request,
) -> Rewrite:
    return lambda body: walk(body, request.api_version, address_of(client, request.client_id))


def _is_diskless(client: Client) -> IsDiskless | None:
    """None where no topic is."""
    topics = client.context.topics
    return topics.is_diskless if topics.all() else None


def _lifelines(client: Client, client_id: str | None, rack: str | None) -> list[Broker]:
    """Proxies of other racks that the client is to know as further brokers."""
    context = client.context
    count = context.settings.fleet.lifelines
    if not count:
        return []
    # Any proxy must find the client's rack by what it says, or a client that asks a lifeline would move to its rack.
    rack = rack or context.racks.on_any_proxy(client.session, client_id)
    if rack is None:
        return []
    key = client_key(client.session.host, client_id)
    fleet: Fleet = context.fleet
    return fleet.lifelines(rack, key, client.session.listeners, context.cluster.view.brokers)[:count]


def _forward_lower(client: Client, request: Request, body: bytes, rewrite: Rewrite) -> None:
    """Ask the broker with another body, in the highest version that brokers know."""
    frame, version = request.frame, API_TABLE[request.api_key].highest_version
    header = frame[:2].tobytes() + version.to_bytes(2, "big") + frame[4 : len(frame) - len(request.body)].tobytes()
    slot = BrokerSlot(client.answers, request.api_key, request.api_version, request.correlation_id, rewrite)
    client.forward_slot(request._replace(frame=memoryview(header + body)), slot)
