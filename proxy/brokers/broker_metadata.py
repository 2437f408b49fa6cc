"""Metadata of shadow topics by topic ID (Metadata v12), from any broker or from each, and the ends of their logs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.brokers.cluster import Cluster
from proxy.brokers.service import ServiceConnection
from proxy.brokers.upstream import BrokerUnreachable
from proxy.process.turns import Turns
from proxy.protocol.api_keys import LIST_OFFSETS, METADATA
from proxy.protocol.errors import NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.cold import encode, nested, read_response
from proxy.wire.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataTopic,
    encode_metadata_request,
    metadata_cluster_id,
    metadata_topics,
)
from proxy.wire.primitives import Buffer

TOPICS_PER_STEP = 500
PARTITIONS_PER_STEP = 500
_VERSION = 12
_LIST_OFFSETS_VERSION = 5
CONSUMER = -1
_ANY_EPOCH = -1
ANY_REPLICA = -2
"""The replica ID with which a follower answers ListOffsets, too (`ListOffsetsRequest.DEBUGGING_REPLICA_ID`): the latest
offset is then the end of its own log, not the high watermark."""
_UNKNOWN = (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)

Ask = Callable[[int, int, "list[Buffer] | bytes"], Awaitable[memoryview]]
"""`ServiceConnection.ask`."""
Partition = tuple[str, int]
"""A topic's name and a partition's number."""


class KnownTopic(NamedTuple):
    """A topic as a broker knows it."""

    name: str
    topic_id: bytes
    partition_count: int


class Known(NamedTuple):
    """An answer to a question for some topics."""

    cluster_id: str
    topics: dict[bytes, KnownTopic]
    """Topics by ID."""
    denied: frozenset[bytes]
    """IDs of topics that the broker does not know. Topics that the proxy may not see are not among them."""


async def ask_topics(connection: ServiceConnection, topic_ids: Sequence[bytes] | None) -> Known:
    """Request topics by ID, at most TOPICS_PER_STEP, or all if None. Raises BrokerUnreachable and ProtocolError."""
    body = await connection.ask(METADATA, _VERSION, _request(topic_ids))
    known: dict[bytes, KnownTopic] = {}
    denied = set()
    for topic in metadata_topics(body, _VERSION):
        topic_id = topic.topic_id or b""
        if topic.error_code == NONE and topic.name is not None:
            known[topic_id] = KnownTopic(topic.name, topic_id, topic.partition_count)
        elif topic.error_code in _UNKNOWN:
            denied.add(topic_id)
    return Known(metadata_cluster_id(body, _VERSION) or "", known, frozenset(denied))


async def named_topics(ask: Ask, references: Sequence[str | bytes] | None, turns: Turns) -> list[MetadataTopic]:
    """Return what a broker knows of topics, all by name or all by ID; of all that the proxy may see if None.

    `ask`: `ServiceConnection.ask`. An answer with very many topics is read in turns. Raises BrokerUnreachable and
    ProtocolError.
    """
    asked = (
        None
        if references is None
        else [
            MetadataRequestTopic(one) if isinstance(one, str) else MetadataRequestTopic(None, one) for one in references
        ]
    )
    request = MetadataRequest(_VERSION, asked, allow_auto_topic_creation=False)
    body = await ask(METADATA, _VERSION, encode_metadata_request(request))
    return await turns.do(metadata_topics.steps(body, _VERSION))


async def ask_all_names(connection: ServiceConnection, turns: Turns) -> list[str]:
    """Return the names of all topics that the proxy may see. Raises BrokerUnreachable and ProtocolError."""
    topics = await named_topics(connection.ask, None, turns)
    return [topic.name for topic in topics if topic.error_code == NONE and topic.name is not None]


async def ask_leaders(connection: ServiceConnection, topic_ids: Sequence[bytes]) -> dict[int, dict[Partition, bytes]]:
    """Return the topic's ID of each partition of some topics, by the node that leads it; those without leader are left
    out.

    Slower than `ask_topics`: for some dozen topics at a time. Raises BrokerUnreachable and ProtocolError.
    """
    response: Any = read_response(METADATA, _VERSION, await connection.ask(METADATA, _VERSION, _request(topic_ids)))
    leaders: dict[int, dict[Partition, bytes]] = {}
    for topic in response.topics:
        if topic.error_code.value == NONE and topic.name is not None:
            for one in topic.partitions:
                if one.leader_id >= 0:
                    of_leader = leaders.setdefault(int(one.leader_id), {})
                    of_leader[str(topic.name), int(one.partition_index)] = topic.topic_id.bytes
    return leaders


async def list_offsets(
    broker: ServiceConnection,
    partitions: Iterable[Partition],
    timestamp: int,
    *,
    replica_id: int = CONSUMER,
    leader_epochs: Mapping[Partition, int] | None = None,
) -> dict[Partition, int]:
    """Return the offsets of at most PARTITIONS_PER_STEP partitions, without partitions for which the answer is an
    error.

    A broker that is not the leader in the epoch in `leader_epochs` answers an error (KIP-320), and so does a new leader
    until its high watermark is true (KIP-207). Raises BrokerUnreachable and ProtocolError.
    """
    from kio.schema.list_offsets.v5.request import ListOffsetsRequest

    await asyncio.sleep(0)  # a message of many partitions takes its time to write
    topic_type = nested(ListOffsetsRequest, "topics")
    partition_type = nested(topic_type, "partitions")
    epochs = leader_epochs or {}
    by_topic: defaultdict[str, list[Any]] = defaultdict(list)
    for name, partition in partitions:
        epoch: Any = epochs.get((name, partition), _ANY_EPOCH)
        asked: Any = partition_type(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        by_topic[name].append(asked)
    topics = tuple(topic_type(name=name, partitions=tuple(of_topic)) for name, of_topic in by_topic.items())
    request = ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=topics)  # type: ignore[arg-type]
    body = await broker.ask(LIST_OFFSETS, _LIST_OFFSETS_VERSION, encode(request))
    response: Any = read_response(LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
    return {
        (str(topic.name), int(one.partition_index)): int(one.offset)
        for topic in response.topics
        for one in topic.partitions
        if one.error_code.value == NONE
    }


def _request(topic_ids: Sequence[bytes] | None) -> bytes:
    topics = None if topic_ids is None else [MetadataRequestTopic(None, topic_id) for topic_id in topic_ids]
    return encode_metadata_request(MetadataRequest(_VERSION, topics, allow_auto_topic_creation=False))


async def denied_by_all(cluster: Cluster, topic_ids: Sequence[bytes]) -> frozenset[bytes]:
    """Return which of the topics, at most TOPICS_PER_STEP, no live broker of the registry's cluster knows.

    Raises BrokerUnreachable if any of the live brokers can't be asked, and ProtocolError.
    """
    if not cluster.view.brokers:
        raise BrokerUnreachable("no broker is known")
    denied = frozenset(topic_ids)
    for node_id in sorted(cluster.view.brokers):
        connection = cluster.connection_to(node_id)
        try:
            denied &= (await ask_topics(connection, sorted(denied))).denied
        finally:
            connection.close()
        if not denied:
            break
    return denied
