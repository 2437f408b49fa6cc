"""Metadata and its kin: whose rack is the client, which proxy stands for each broker, who leads a diskless partition.

For a client of rack R (KAFKA-19257, KIP-1163):

- every broker's address becomes that broker's listener on a live proxy of R, on this proxy where R has none;
- classic topics keep leader, replicas and ISR;
- one live broker of R (of any rack where R has none) is the sole leader, replica and ISR of *all* diskless partitions
  in the response. The choice is sticky per client: it stays while that broker lives, whichever proxy the client asks.

The brokers' answer is walked and patched in place (`wire.metadata`), so every version is served and what is unknown
passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from proxy.racks import client_rack, sticky_choice
from proxy.request import Request
from proxy.wire import endpoints
from proxy.wire.metadata import metadata_brokers, rewrite_metadata_response

if TYPE_CHECKING:
    from proxy.connection import ClientConnection
    from proxy.slots import Rewrite
    from proxy.wire.primitives import Buffer

AddressOf = Callable[[int], "tuple[str, int] | None"]


def rack_of(connection: ClientConnection, client_id: str | None) -> str:
    """The rack of the client behind a connection."""
    context = connection.context
    return client_rack(client_id, context.settings.rack_of(connection.listeners), context.fleet.racks())


def counted_rack(connection: ClientConnection, client_id: str | None) -> str:
    """The rack under which the client's bytes are counted: what clients make up is `unknown`, so labels stay few."""
    context, rack = connection.context, rack_of(connection, client_id)
    known = rack in context.fleet.racks() or any(one.rack == rack for one in context.cluster.view.brokers.values())
    return rack if known else "unknown"


def address_of(connection: ClientConnection, client_id: str | None) -> AddressOf:
    """What the client is told as the address of each broker; None for one that no listener stands for."""
    fleet, rack = connection.context.fleet, rack_of(connection, client_id)
    client = f"{connection.host}\0{client_id}"
    return lambda node_id: fleet.listener(node_id, rack, client, connection.listeners)


def diskless_leader(connection: ClientConnection, client_id: str | None) -> int:
    """The node ID of the broker that leads all diskless partitions for this client; -1 where no broker lives."""
    told = address_of(connection, client_id)
    view = connection.context.cluster.view.with_address(told)
    candidates = view.in_rack(rack_of(connection, client_id))
    return sticky_choice(f"{connection.host}\0{client_id}", candidates) if candidates else -1


def metadata(connection: ClientConnection, request: Request) -> None:
    """Metadata (API key 3), all versions."""
    context, version, client_id = connection.context, request.api_version, request.client_id

    def rewrite(body: memoryview) -> list[Buffer]:
        if version >= 1:
            context.cluster.learn(metadata_brokers(body, version))
        return rewrite_metadata_response(
            body,
            version,
            address_of=address_of(connection, client_id),
            is_diskless=context.topics.is_diskless if context.topics.all() else None,
            leader=diskless_leader(connection, client_id),
        )

    connection.forward(request, rewrite)


def describe_topic_partitions(connection: ClientConnection, request: Request) -> None:
    """DescribeTopicPartitions (API key 75): the same leaders as Metadata; it carries no address."""
    topics, client_id = connection.context.topics, request.client_id

    def rewrite(body: memoryview) -> list[Buffer]:
        leader = diskless_leader(connection, client_id)
        return endpoints.rewrite_describe_topic_partitions(body, request.api_version, topics.is_diskless, leader)

    connection.forward(request, rewrite)


def find_coordinator(connection: ClientConnection, request: Request) -> None:
    """FindCoordinator (API key 10): group and transaction coordinators are the brokers' own, behind our addresses."""
    connection.forward(request, _addresses(endpoints.rewrite_find_coordinator, connection, request))


def describe_cluster(connection: ClientConnection, request: Request) -> None:
    """DescribeCluster (API key 60)."""
    connection.forward(request, _addresses(endpoints.rewrite_describe_cluster, connection, request))


def node_endpoints(connection: ClientConnection, request: Request) -> None:
    """ShareFetch and ShareAcknowledge (API keys 78, 79): new leaders come with their addresses (KIP-951)."""

    def rewrite(body: memoryview) -> list[Buffer]:
        told = address_of(connection, request.client_id)
        return endpoints.rewrite_node_endpoints(request.api_key, body, request.api_version, told)

    connection.forward(request, rewrite)


def _addresses(
    walk: Callable[[memoryview, int, AddressOf], list[Buffer]], connection: ClientConnection, request: Request
) -> Rewrite:
    return lambda body: walk(body, request.api_version, address_of(connection, request.client_id))
