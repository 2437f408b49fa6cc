"""AlterPartitionReassignments (API key 45): shadow topics move as the brokers' topics do, but lose no replica unawares.

Behaviour: the brokers answer, with the client's rights, and move the replicas of the shadow: that is how a broker is
made free of it. But clients see one replica of each rack for a diskless partition. A plan that was made from this view
has as many, and could remove replicas. So a diskless partition is rejected (INVALID_REPLICATION_FACTOR, with a message)
if the plan has as many replicas as clients see and the shadow has more; the other partitions go on. To remove replicas
on purpose, ask the brokers. Under `leader_choice: replica` clients see all replicas, and nothing is rejected.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.brokers.cluster import Cluster
from proxy.client.client import Client
from proxy.client.request import Request
from proxy.client.slots import Slot
from proxy.config import Settings
from proxy.protocol.api_keys import METADATA
from proxy.protocol.errors import INVALID_REPLICATION_FACTOR, NONE
from proxy.routing.addresses import Addresses
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, nested, read_request, read_response
from proxy.wire.metadata import build_metadata_request
from proxy.wire.partition_leaders import HashedLeaders, SoleLeader

_METADATA_VERSION = 12
_REFUSED = (
    "Partition {partition} of diskless topic {topic} has {has} replicas on the brokers, and clients see {seen}: "
    "this plan would remove the others. Name as many, or ask the brokers directly."
)


class AlterPartitionReassignments:
    """Handler of AlterPartitionReassignments."""

    def __init__(self, settings: Settings, *, topics: Topics, cluster: Cluster, addresses: Addresses) -> None:
        self._settings = settings
        self._topics = topics
        self._cluster = cluster
        self._addresses = addresses

    def alter_partition_reassignments(self, client: Client, request: Request) -> Coroutine[Any, Any, None] | None:
        """Forward what moves no diskless topic."""
        topics = self._topics
        if not topics.all() or self._settings.leader_choice == "replica":
            client.forward(request)
            return None
        asked = read_request(request.api_key, request.api_version, request.body)
        moved = {
            str(topic.name)
            for topic in asked.topics
            if topics.find(str(topic.name)) is not None and any(one.replicas is not None for one in topic.partitions)
        }
        if not moved:
            client.forward(request)
            return None
        return self._alter(client, request, client.open_slot(request), asked, moved)

    async def _alter(self, client: Client, request: Request, slot: Slot, asked: Any, moved: Iterable[str]) -> None:
        """Raises BrokerUnreachable and ProtocolError."""
        replicas = await self._replica_counts(moved)
        leaders = self._addresses.diskless_leaders(client.session, request.client_id, metadata=False)
        seen = leaders.replica_count if isinstance(leaders, SoleLeader | HashedLeaders) else 1
        refused: dict[str, list[tuple[int, str]]] = {}
        kept = []
        for topic in asked.topics:
            name, partitions = str(topic.name), []
            for one in topic.partitions:
                has = replicas.get((name, one.partition_index), 0)
                if one.replicas is not None and len(one.replicas) == seen < has:
                    message = _REFUSED.format(partition=one.partition_index, topic=name, has=has, seen=seen)
                    refused.setdefault(name, []).append((one.partition_index, message))
                else:
                    partitions.append(one)
            kept.append(replace(topic, partitions=tuple(partitions)))
        theirs = replace(asked, topics=tuple(topic for topic in kept if topic.partitions))
        body = await client.ask(request, request.api_key, request.api_version, encode(theirs))
        if not refused:
            slot.fill([body])
            return
        response = read_response(request.api_key, request.api_version, body)
        if response.error_code.value != NONE:
            slot.fill([body])
            return
        topic_type = nested(load_response_schema(request.api_key, request.api_version), "responses")
        added = tuple(_refusal(topic_type, name, partitions) for name, partitions in refused.items())
        slot.fill([encode(replace(response, responses=(*response.responses, *added)))])

    async def _replica_counts(self, names: Iterable[str]) -> dict[tuple[str, int], int]:
        """How many replicas shadows have, by name and partition."""
        asked = build_metadata_request(_METADATA_VERSION, sorted(names))
        body = await self._cluster.service.ask(METADATA, _METADATA_VERSION, asked)
        response = read_response(METADATA, _METADATA_VERSION, body)
        return {
            (str(topic.name), one.partition_index): len(one.replica_nodes)
            for topic in response.topics
            for one in topic.partitions
        }


def _refusal(topic_type: Any, name: str, partitions: list[tuple[int, str]]) -> Any:
    partition_type = nested(topic_type, "partitions")
    return topic_type(
        name=name,
        partitions=tuple(
            partition_type(
                partition_index=index, error_code=ErrorCode(INVALID_REPLICATION_FACTOR), error_message=message
            )
            for index, message in partitions
        ),
    )
