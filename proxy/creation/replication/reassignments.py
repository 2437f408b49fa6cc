"""The brokers' knowledge of partitions' replicas, and requests to change them (KIP-455).

Metadata v12 names topics by their ID; AlterPartitionReassignments (API key 45) and ListPartitionReassignments (46) know
names only, and any broker forwards them to the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kio.index import load_request_schema

from proxy.brokers.broker_metadata import Partition
from proxy.brokers.states import ClassicTopic
from proxy.protocol.api_keys import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, METADATA
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.metadata import MetadataRequest, MetadataRequestTopic, encode_metadata_request
from proxy.wire.partition_states import VERSION as METADATA_VERSION
from proxy.wire.partition_states import read_partitions, split_topics
from proxy.wire.primitives import Buffer

TOPICS_PER_REQUEST = 100
"""Maximum number of topics in one request for replicas."""
_PARTITIONS_PER_STEP = 1_000
"""Read without letting others go on."""
_VERSION = 0
"""Version of both APIs: v1 of the first (KIP-860) adds a wish that is granted by default."""
_TIMEOUT_MS = 30_000
"""For the controller, as Admin clients have it."""
_UNKNOWN = (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)


class Asks(Protocol):
    """A service connection, or a client's connection to its broker."""

    async def ask(self, api_key: int, api_version: int, body: list[Buffer] | bytes) -> memoryview:
        """The answer without its header. Raises BrokerUnreachable."""
        ...


class KnownReplicas(NamedTuple):
    """An answer to a question for some topics."""

    topics: tuple[ClassicTopic, ...]
    denied: frozenset[str | bytes]
    """Names or IDs of which the broker says that it knows no such topic."""
    hidden: frozenset[str | bytes] = frozenset()
    """Topics that the proxy's principal may not see: it needs the right to describe them."""


class Reassignment(NamedTuple):
    """One that is under way."""

    replicas: tuple[int, ...]
    """All that the partition has meanwhile."""
    adding: tuple[int, ...]


class ReassignmentsRefused(Exception):
    """The brokers do not let the proxy's principal list or alter reassignments, or can't now; the text says which."""

    def __init__(self, text: str, *, rights: bool) -> None:
        """`rights`: for lack of rights, which does not end by itself."""
        super().__init__(text)
        self.rights = rights


async def ask_replicas(connection: Asks, topics: Sequence[str | bytes] | None) -> KnownReplicas:
    """Request topics by name, or by ID (brokers ignore names next to IDs), at most TOPICS_PER_REQUEST; all if None.

    Raises BrokerUnreachable and ProtocolError.
    """
    asked = None
    if topics is not None:
        asked = [
            MetadataRequestTopic(one) if isinstance(one, str) else MetadataRequestTopic(None, one) for one in topics
        ]
    request = MetadataRequest(METADATA_VERSION, asked, allow_auto_topic_creation=False)
    body = await connection.ask(METADATA, METADATA_VERSION, encode_metadata_request(request))
    found, denied, hidden, read = [], set[str | bytes](), set[str | bytes](), 0
    for topic in split_topics(body):
        if topic.error_code == NONE and topic.name is not None:
            partitions = read_partitions(topic.encoded)
            found.append(ClassicTopic(topic.name, topic.topic_id, partitions))
            read += len(partitions)
            if read > _PARTITIONS_PER_STEP:
                read = 0
                await asyncio.sleep(0)
        elif topic.error_code in (*_UNKNOWN, TOPIC_AUTHORIZATION_FAILED):
            where = hidden if topic.error_code == TOPIC_AUTHORIZATION_FAILED else denied
            where.add(topic.name if topic.name is not None else topic.topic_id)
    return KnownReplicas(tuple(found), frozenset(denied), frozenset(hidden))


async def list_reassignments(connection: Asks, partitions: Iterable[Partition]) -> dict[Partition, Reassignment]:
    """Return the partitions that have a reassignment under way, no matter which client requested it.

    Raises ReassignmentsRefused, BrokerUnreachable and ProtocolError.
    """
    request_type: Any = load_request_schema(LIST_PARTITION_REASSIGNMENTS, _VERSION)
    topic_type = nested(request_type, "topics")
    asked = tuple(
        topic_type(name=name, partition_indexes=tuple(sorted(numbers)))
        for name, numbers in _by_topic(dict.fromkeys(partitions)).items()
    )
    body = encode(request_type(timeout=milliseconds(_TIMEOUT_MS), topics=asked))
    response: Any = read_response(
        LIST_PARTITION_REASSIGNMENTS, _VERSION, await connection.ask(LIST_PARTITION_REASSIGNMENTS, _VERSION, body)
    )
    _check(response, "ListPartitionReassignments", "Describe")
    return {
        (str(topic.name), int(one.partition_index)): Reassignment(
            tuple(int(node) for node in one.replicas),
            tuple(int(node) for node in one.adding_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    }


async def reassign(connection: Asks, targets: Mapping[Partition, Sequence[int]]) -> dict[Partition, tuple[int, str]]:
    """Have partitions moved to those replicas, the preferred leader first; error code and message of those refused.

    May be repeated. Raises ReassignmentsRefused, BrokerUnreachable and ProtocolError.
    """
    request_type: Any = load_request_schema(ALTER_PARTITION_REASSIGNMENTS, _VERSION)
    topic_type = nested(request_type, "topics")
    partition_type = nested(topic_type, "partitions")
    asked = tuple(
        topic_type(
            name=name,
            partitions=tuple(
                partition_type(partition_index=number, replicas=tuple(replicas)) for number, replicas in numbers.items()
            ),
        )
        for name, numbers in _by_topic(targets).items()
    )
    body = encode(request_type(timeout=milliseconds(_TIMEOUT_MS), topics=asked))
    response: Any = read_response(
        ALTER_PARTITION_REASSIGNMENTS, _VERSION, await connection.ask(ALTER_PARTITION_REASSIGNMENTS, _VERSION, body)
    )
    _check(response, "AlterPartitionReassignments", "Alter")
    return {
        (str(topic.name), int(one.partition_index)): (one.error_code.value, one.error_message or one.error_code.name)
        for topic in response.responses
        for one in topic.partitions
        if one.error_code.value != NONE
    }


def _by_topic(partitions: Mapping[Partition, Any]) -> dict[str, dict[int, Any]]:
    topics: dict[str, dict[int, Any]] = {}
    for (name, number), value in partitions.items():
        topics.setdefault(name, {})[number] = value
    return topics


def _check(response: Any, api: str, right: str) -> None:
    if response.error_code.value == CLUSTER_AUTHORIZATION_FAILED:
        raise ReassignmentsRefused(
            f"{api} is rejected: the proxy's principal lacks {right} on the cluster", rights=True
        )
    if response.error_code.value != NONE:
        reason = response.error_message or response.error_code.name
        raise ReassignmentsRefused(f"{api} answers {reason}", rights=False)
