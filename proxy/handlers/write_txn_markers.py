"""WriteTxnMarkers (API key 27): an operator ends a transaction that hangs (KIP-664).

Behaviour: the broker writes the markers for classic partitions. A marker for a diskless partition is written into its
shadow, at the leader of the shadow, and is applied as the brokers' own markers are. The client needs the right that
brokers require, `Alter` on the cluster, and the proxy's principal needs it too. If it is not certain that a topic is
classic, or if a diskless topic is not live, the answer is NOT_LEADER_OR_FOLLOWER, which clients retry.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.handlers.add_partitions_to_txn import names_of, not_classic
from proxy.protocol.api_keys import DESCRIBE_CLUSTER
from proxy.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER
from proxy.topics.topics import Topics
from proxy.transactions.shadow_markers import Errors, ShadowMarkers
from proxy.wire.cold import encode, nested, read_request, read_response
from proxy.wire.primitives import MAX_REJECTED_ELEMENTS

_ALTER, _CLUSTER_ACTION = 1 << 7, 1 << 9
"""Bits of the authorized operations: `AclOperation` codes."""
_DESCRIBE_CLUSTER_VERSION = 0


class WriteTxnMarkers:
    """Handler of WriteTxnMarkers."""

    def __init__(self, *, topics: Topics, markers: ShadowMarkers) -> None:
        self._topics = topics
        self._markers = markers

    def write_txn_markers(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward the request if all of its topics are classic. Raises ProtocolError."""
        asked = read_request(request.api_key, request.api_version, request.body, most=MAX_REJECTED_ELEMENTS)
        if not not_classic(self._topics, {name for one in asked.markers for name in names_of(one.topics)}):
            client.forward(request)
            return None
        return self._write(client, request, asked, client.open_slot(request))

    async def _write(self, client: Client, request: Request, asked: Any, slot: Slot) -> None:
        """Write each marker where it belongs. Raises BrokerUnreachable and ProtocolError."""
        found = not_classic(self._topics, {name for one in asked.markers for name in names_of(one.topics)})
        entries = {name: entry for name in found if (entry := self._topics.find(name)) is not None}
        live = {name: entry.topic_id for name, entry in entries.items() if entry.state == "live"}
        theirs = _named(asked.markers, lambda name: name not in found)
        results: dict[int, tuple[Any, ...]] = {}
        if theirs:
            asked_of_broker = encode(replace(asked, markers=theirs))
            body = await client.ask(request, request.api_key, request.api_version, asked_of_broker)
            response = read_response(request.api_key, request.api_version, body)
            results = {int(one.producer_id): one.topics for one in response.markers}
        otherwise, errors = NOT_LEADER_OR_FOLLOWER, Errors()
        if live and not await _may_write(client, request):
            otherwise = CLUSTER_AUTHORIZATION_FAILED
        elif live:
            errors = await self._markers.write(_named(asked.markers, lambda name: name in live), live)
        mine = _named(asked.markers, lambda name: name in found)
        slot.fill([_answer(request, mine, errors, otherwise, results)])


async def _may_write(client: Client, request: Request) -> bool:
    """Return whether the brokers would take markers from the client. Raises BrokerUnreachable and ProtocolError."""
    from kio.schema.describe_cluster.v0.request import DescribeClusterRequest

    body = encode(DescribeClusterRequest(include_cluster_authorized_operations=True))
    answer = await client.ask(request, DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, body)
    described: Any = read_response(DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, answer)
    operations = int(described.cluster_authorized_operations)
    return operations >= 0 and bool(operations & (_ALTER | _CLUSTER_ACTION))


def _named(markers: Any, is_wanted: Any) -> tuple[Any, ...]:
    """Return the markers for the topics that are wanted, by name."""
    kept = [replace(one, topics=tuple(topic for topic in one.topics if is_wanted(str(topic.name)))) for one in markers]
    return tuple(one for one in kept if one.topics)


def _answer(
    request: Request,
    markers: tuple[Any, ...],
    errors: Mapping[tuple[int, str, int], int],
    otherwise: int,
    results: dict[int, tuple[Any, ...]],
) -> bytes:
    """Return the body of an answer: the broker's `results`, and the errors of these markers."""
    response_type: Any = load_response_schema(request.api_key, request.api_version)
    marker_type = nested(response_type, "markers")
    topic_type = nested(marker_type, "topics")
    partition_type = nested(topic_type, "partitions")
    for one in markers:
        producer_id = int(one.producer_id)
        mine = tuple(
            topic_type(
                name=topic.name,
                partitions=tuple(
                    partition_type(
                        partition_index=index,
                        error_code=ErrorCode(errors.get((producer_id, str(topic.name), int(index)), otherwise)),
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in one.topics
        )
        results[producer_id] = (*results.get(producer_id, ()), *mine)
    return encode(
        response_type(
            markers=tuple(
                marker_type(producer_id=producer_id, topics=topics) for producer_id, topics in results.items()
            )
        )
    )
