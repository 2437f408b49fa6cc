"""The requests to the brokers for replicas and reassignments, and the parsing of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers.states import ClassicTopic
from proxy.creation.replication.reassignments import (
    KnownReplicas,
    Reassignment,
    ReassignmentsRefused,
    ask_replicas,
    list_reassignments,
    reassign,
)
from proxy.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from proxy.wire.cold import read_request
from proxy.wire.partition_states import PartitionState
from tests.unit.wire.trees import encode, response_type

ID, OTHER = b"i" * 16, b"o" * 16
NOT_CONTROLLER = 41


class Connection:
    """Answers with a tree of plain values, and records its requests."""

    def __init__(self, **answer: Any) -> None:
        self._answer = answer
        self.asked: Any = None

    async def ask(self, api_key: int, api_version: int, body: bytes) -> memoryview:
        self.asked = read_request(api_key, api_version, body)
        return memoryview(encode(response_type(api_key, api_version), self._answer))


def metadata_topic(error_code: int, name: str | None, topic_id: bytes, partitions: list[dict[str, Any]]) -> Any:
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": -(2**31),
    }


def metadata_partition(index: int, leader: int, replicas: list[int], isr: list[int]) -> dict[str, Any]:
    return {
        "error_code": 0 if leader >= 0 else 5,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": 7,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": [],
    }


def metadata(*topics: Any) -> Connection:
    return Connection(throttle_time=0, brokers=[], cluster_id="c", controller_id=1, topics=list(topics))


async def test_replicas_by_id() -> None:
    connection: Any = metadata(
        metadata_topic(0, "t", ID, [metadata_partition(1, 2, [2, 1], [2]), metadata_partition(0, -1, [1], [])]),
        metadata_topic(UNKNOWN_TOPIC_OR_PARTITION, "gone", bytes(16), []),
        metadata_topic(UNKNOWN_TOPIC_ID, None, OTHER, []),
        metadata_topic(29, "hidden", bytes(16), []),
    )
    known = await ask_replicas(connection, [ID, OTHER])
    assert [(topic.name, topic.topic_id.bytes) for topic in connection.asked.topics] == [(None, ID), (None, OTHER)]
    assert not connection.asked.allow_auto_topic_creation
    partitions = {1: PartitionState(2, 7, (2, 1), (2,)), 0: PartitionState(-1, 7, (1,), ())}
    assert known == KnownReplicas(
        (ClassicTopic("t", ID, partitions),), frozenset({"gone", OTHER}), frozenset({"hidden"})
    )


async def test_replicas_by_name() -> None:
    connection: Any = metadata()
    await ask_replicas(connection, ["one", "other"])
    assert [(topic.name, topic.topic_id) for topic in connection.asked.topics] == [("one", None), ("other", None)]


async def test_replicas_of_all_topics() -> None:
    connection: Any = metadata()
    assert await ask_replicas(connection, None) == KnownReplicas((), frozenset())
    assert connection.asked.topics is None


async def test_reassignments_under_way() -> None:
    moving = {"partition_index": 1, "replicas": [1, 2, 3], "adding_replicas": [3], "removing_replicas": [1]}
    topics = [{"name": "t", "partitions": [moving]}]
    connection: Any = Connection(throttle_time=0, error_code=0, error_message=None, topics=topics)
    found = await list_reassignments(connection, [("t", 1), ("t", 0), ("u", 0), ("t", 1)])
    assert found == {("t", 1): Reassignment((1, 2, 3), (3,))}
    assert {topic.name: topic.partition_indexes for topic in connection.asked.topics} == {"t": (0, 1), "u": (0,)}


async def test_reassigning() -> None:
    refused = {"partition_index": 1, "error_code": 39, "error_message": "no such broker"}
    unexplained = {"partition_index": 2, "error_code": 3, "error_message": None}
    made = {"partition_index": 0, "error_code": 0, "error_message": None}
    responses = [{"name": "t", "partitions": [made, refused, unexplained]}]
    connection: Any = Connection(throttle_time=0, error_code=0, error_message=None, responses=responses)
    asked = {("t", 0): (3, 1), ("t", 1): (1, 9), ("t", 2): (1,)}
    assert await reassign(connection, asked) == {
        ("t", 1): (39, "no such broker"),
        ("t", 2): (3, "unknown_topic_or_partition"),
    }
    (topic,) = connection.asked.topics
    assert {one.partition_index: one.replicas for one in topic.partitions} == {0: (3, 1), 1: (1, 9), 2: (1,)}


@pytest.mark.parametrize("error_code", [CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER])
async def test_a_request_that_is_rejected_as_a_whole(error_code: int) -> None:
    failed = {"throttle_time": 0, "error_code": error_code, "error_message": None}
    listing: Any = Connection(**failed, topics=[])
    with pytest.raises(ReassignmentsRefused) as caught:
        await list_reassignments(listing, [("t", 0)])
    assert caught.value.rights == (error_code == CLUSTER_AUTHORIZATION_FAILED)
    altering: Any = Connection(**failed, responses=[])
    with pytest.raises(ReassignmentsRefused, match="AlterPartitionReassignments"):
        await reassign(altering, {("t", 0): (1,)})
