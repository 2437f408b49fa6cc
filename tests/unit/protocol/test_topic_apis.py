"""The treatment of a diskless topic in each API whose request can name a topic: the list is complete."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import kio.schema.index
import pytest

from proxy.protocol.apis import API_TABLE, Treatment
from tests.unit.wire.trees import request_type, schema_of


class Who(Enum):
    """The part that answers for a diskless topic."""

    PROXY = "the proxy, from the coordinator and the registry"
    BOTH = "the brokers for the shadow, and the proxy puts in or takes out what is otherwise"
    BROKERS = "the brokers: what they know of the shadow is true of the diskless topic"
    SHADOW = "the brokers: it is about the shadow, whose replicas and markers are theirs"
    NOBODY = "it is between brokers"


class Fate(NamedTuple):
    who: Who
    why: str
    """Effect that a client notices."""


FATES = {
    "Produce": Fate(Who.PROXY, "batches go to object storage"),
    "Fetch": Fate(Who.PROXY, "batches come from object storage"),
    "ListOffsets": Fate(Who.PROXY, "the coordinator's offsets"),
    "Metadata": Fate(Who.BOTH, "its leader is of the client's rack; created on demand it is diskless by its name"),
    "OffsetCommit": Fate(Who.BROKERS, "groups keep offsets by names or the shadow's ID, which is the topic's"),
    "OffsetFetch": Fate(Who.BROKERS, "as OffsetCommit"),
    "CreateTopics": Fate(Who.BOTH, "reserved, then a shadow, then logs"),
    "DeleteTopics": Fate(Who.BOTH, "the shadow, then logs and entry"),
    "DeleteRecords": Fate(Who.PROXY, "the coordinator's log start moves"),
    "OffsetForLeaderEpoch": Fate(Who.PROXY, "no epoch diverges"),
    "AddPartitionsToTxn": Fate(Who.BOTH, "INVALID_TOPIC_EXCEPTION, and nothing of that transaction is added"),
    "WriteTxnMarkers": Fate(Who.BOTH, "INVALID_TOPIC_EXCEPTION for that topic"),
    "TxnOffsetCommit": Fate(Who.BROKERS, "as OffsetCommit"),
    "DescribeAcls": Fate(Who.BROKERS, "the brokers hold the ACLs, by name"),
    "CreateAcls": Fate(Who.BROKERS, "as DescribeAcls"),
    "DeleteAcls": Fate(Who.BROKERS, "as DescribeAcls"),
    "DescribeConfigs": Fate(Who.BOTH, "what governs data is the registry's"),
    "AlterConfigs": Fate(Who.BOTH, "as DescribeConfigs"),
    "IncrementalAlterConfigs": Fate(Who.BOTH, "as DescribeConfigs"),
    "AlterReplicaLogDirs": Fate(Who.SHADOW, "the shadow's replica moves between a broker's disks"),
    "DescribeLogDirs": Fate(Who.BOTH, "object storage is a log directory more; shadows are left out"),
    "CreatePartitions": Fate(Who.BOTH, "the shadow grows, then the logs"),
    "ElectLeaders": Fate(Who.SHADOW, "a leader of the shadow is elected; the leader that clients get stays"),
    "AlterPartitionReassignments": Fate(
        Who.BOTH, "the shadow's replicas move, as when a broker is to go, but not fewer"
    ),
    "ListPartitionReassignments": Fate(Who.SHADOW, "the shadow's replicas on their way"),
    "OffsetDelete": Fate(Who.BROKERS, "as OffsetCommit"),
    "DescribeProducers": Fate(Who.PROXY, "the producers that the coordinator remembers"),
    "ConsumerGroupHeartbeat": Fate(Who.BROKERS, "assigned by the shadow's partitions, which are as many"),
    "DescribeTopicPartitions": Fate(Who.BOTH, "as Metadata"),
    "ShareGroupHeartbeat": Fate(Who.PROXY, "INVALID_TOPIC_EXCEPTION for the member, with the topics in the message"),
    "ShareFetch": Fate(Who.BOTH, "UNKNOWN_TOPIC_ID until the next heartbeat; other topics go on"),
    "ShareAcknowledge": Fate(Who.BOTH, "INVALID_TOPIC_EXCEPTION for that topic"),
    "StreamsGroupHeartbeat": Fate(Who.BROKERS, "sources as of any group; topics that the brokers make are classic"),
    "DescribeShareGroupOffsets": Fate(Who.BOTH, "without lag"),
    "AlterShareGroupOffsets": Fate(Who.BOTH, "INVALID_TOPIC_EXCEPTION for that topic"),
    "DeleteShareGroupOffsets": Fate(Who.BROKERS, "what a share group made for the topic can go"),
    "DescribeQuorum": Fate(Who.NOBODY, "of the metadata topic only"),
    "Vote": Fate(Who.NOBODY, "of the metadata topic only"),
    "BeginQuorumEpoch": Fate(Who.NOBODY, "of the metadata topic only"),
    "EndQuorumEpoch": Fate(Who.NOBODY, "of the metadata topic only"),
    "FetchSnapshot": Fate(Who.NOBODY, "of the metadata topic only"),
    "AlterPartition": Fate(Who.NOBODY, "the shadow's ISR"),
    "AssignReplicasToDirs": Fate(Who.NOBODY, "the shadow's replicas"),
    "InitializeShareGroupState": Fate(Who.NOBODY, "of share groups"),
    "ReadShareGroupState": Fate(Who.NOBODY, "of share groups"),
    "WriteShareGroupState": Fate(Who.NOBODY, "of share groups"),
    "DeleteShareGroupState": Fate(Who.NOBODY, "of share groups"),
    "ReadShareGroupStateSummary": Fate(Who.NOBODY, "of share groups"),
}

TREATMENTS = {
    Who.PROXY: {Treatment.INTERCEPT},
    Who.BOTH: {Treatment.INTERCEPT, Treatment.REWRITE},
    # Heartbeats are only looked at.
    Who.BROKERS: {Treatment.PASS, Treatment.INTERCEPT},
    Who.SHADOW: {Treatment.PASS},
    Who.NOBODY: {Treatment.HIDE, Treatment.REWRITE},
}

NAMES_A_TOPIC = ("topic", "resource_name")
NOT_TOPICS = {"allow_auto_topic_creation", "include_topic_authorized_operations"}


def paths(entity: Any, before: str = "") -> Iterator[str]:
    for field in schema_of(entity).fields:
        yield before + field.name
        if field.kind == "struct":
            yield from paths(field.entity, f"{before}{field.name}.")


def names_topics(key: int, name: str) -> bool:
    """True if a field of some version of the request is a topic's name or ID, or contains such fields."""
    found = {path for version in kio.schema.index.schema_name_map[name] for path in paths(request_type(key, version))}
    return any(part in path for path in found - NOT_TOPICS for part in NAMES_A_TOPIC)


def test_every_api_that_names_a_topic_is_here() -> None:
    """Look through the requests of kio, here and not for a list of cases: to import them all takes seconds."""
    keys = {key for key, name in kio.schema.index.api_key_map.items() if names_topics(key, name)}
    assert {API_TABLE[key].name for key in keys} == FATES.keys()


@pytest.mark.parametrize("name", FATES)
def test_the_table_of_apis_does_as_is_said(name: str) -> None:
    (api,) = (api for api in API_TABLE.values() if api.name == name)
    assert api.treatment in TREATMENTS[FATES[name].who]
    assert FATES[name].why


def test_the_rest_names_no_topic() -> None:
    """No other served API lets a client name a topic."""
    rest = {api.name for api in API_TABLE.values() if api.treatment is not Treatment.HIDE} - FATES.keys()
    assert {"JoinGroup", "SyncGroup", "DescribeTransactions", "ListTransactions", "DeleteGroups"} <= rest
    # Opaque to brokers, or by ID of the transaction: subscriptions and assignments of the classic protocol.
    assert "ConsumerGroupDescribe" in rest
