"""WriteTxnMarkers: markers for classic partitions are the broker's, those for diskless ones go to shadows' leaders."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.handlers.write_txn_markers import WriteTxnMarkers
from proxy.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
)
from proxy.topics.topics import Topics
from proxy.transactions.shadow_markers import Errors
from proxy.wire.cold import read_response
from tests.registry_model import ModelTopicRegistry
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

WRITE_MARKERS, DESCRIBE_CLUSTER = 27, 60
ALTER, CLUSTER_ACTION, DESCRIBE = 1 << 7, 1 << 9, 1 << 8
DISKLESS, OTHER, CLASSIC, RESERVED = "diskless", "other", "classic", "reserved"


class Client(ClientDouble):
    """A client whose broker takes every marker."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(self._broker)
        self.handler = WriteTxnMarkers(topics=topics, markers=self)  # type: ignore[arg-type]
        self.operations = ALTER
        self.broker_heard_of: list[str] = []
        self.written: list[tuple[int, str, int]] = []
        self.shadow_errors: dict[str, int] = {}

    async def write(self, markers: Any, topic_ids: dict[str, bytes]) -> Errors:
        """Stand for `ShadowMarkers.write`."""
        named = [(one.producer_id, topic.name, index) for one in markers for topic in one.topics
                 for index in topic.partition_indexes]  # fmt: skip
        assert {name for _, name, _ in named} <= topic_ids.keys()
        self.written += named
        return {key: self.shadow_errors.get(key[1], NONE) for key in named}

    def _broker(self, api_key: int, version: int, body: bytes) -> bytes:
        asked = decode(request_type(api_key, version), body)
        entity = response_type(api_key, version)
        if api_key == DESCRIBE_CLUSTER:
            assert asked == {"include_cluster_authorized_operations": True}
            return encode(entity, filled(entity, {"cluster_authorized_operations": self.operations}))
        assert api_key == WRITE_MARKERS
        self.broker_heard_of += [topic["name"] for marker in asked["markers"] for topic in marker["topics"]]
        return encode(entity, filled(entity, {"markers": [_accepted(marker) for marker in asked["markers"]]}))

    async def send(self, version: int, *markers: dict[str, Any]) -> dict[tuple[int, str], list[int]]:
        """Return the errors by producer ID and topic; empty if the request went to the broker as it came."""
        entity = request_type(WRITE_MARKERS, version)
        body = encode(entity, filled(entity, {"markers": list(markers)}))
        answer = await self.answer(self.handler.write_txn_markers, request_of(WRITE_MARKERS, version, body))
        if answer is None:
            return {}
        read_response(WRITE_MARKERS, version, memoryview(answer))
        return {
            (marker["producer_id"], one["name"]): [partition["error_code"] for partition in one["partitions"]]
            for marker in decode(response_type(WRITE_MARKERS, version), answer)["markers"]
            for one in marker["topics"]
        }


def _accepted(marker: dict[str, Any]) -> dict[str, Any]:
    topics = [
        {"name": one["name"], "partitions": [{"partition_index": index} for index in one["partition_indexes"]]}
        for one in marker["topics"]
    ]
    return {"producer_id": marker["producer_id"], "topics": topics}


def marker(producer_id: int, **partitions: list[int]) -> dict[str, Any]:
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in partitions.items()]
    return {"producer_id": producer_id, "topics": topics}


@pytest.fixture
async def client() -> Client:
    registry = ModelTopicRegistry()
    for name in (DISKLESS, OTHER):
        await registry.reserve(name, 3, {}, "owner")
        await registry.activate(name, name.encode().ljust(16), 3)
    await registry.reserve(RESERVED, 3, {}, "owner")
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    return Client(topics)


MIXED = (marker(7, classic=[0], diskless=[1, 2]), marker(8, other=[0]))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("operations", [ALTER, CLUSTER_ACTION | DESCRIBE])
async def test_each_marker_goes_where_it_belongs(client: Client, version: int, operations: int) -> None:
    client.operations, client.shadow_errors = operations, {OTHER: INVALID_PRODUCER_EPOCH}
    assert await client.send(version, *MIXED) == {
        (7, CLASSIC): [NONE],
        (7, DISKLESS): [NONE, NONE],
        (8, OTHER): [INVALID_PRODUCER_EPOCH],
    }
    assert client.broker_heard_of == [CLASSIC]
    assert client.written == [(7, DISKLESS, 1), (7, DISKLESS, 2), (8, OTHER, 0)]


@pytest.mark.parametrize("operations", [DESCRIBE, -(2**31)])
async def test_a_client_without_the_right_writes_none(client: Client, operations: int) -> None:
    """Brokers answer the lowest number if they do not report operations."""
    client.operations = operations
    assert await client.send(1, *MIXED) == {
        (7, CLASSIC): [NONE],
        (7, DISKLESS): [CLUSTER_AUTHORIZATION_FAILED] * 2,
        (8, OTHER): [CLUSTER_AUTHORIZATION_FAILED],
    }
    assert client.written == []


async def test_a_topic_that_is_not_live_is_retried(client: Client) -> None:
    assert await client.send(1, marker(7, reserved=[0])) == {(7, RESERVED): [NOT_LEADER_OR_FOLLOWER]}
    assert (client.broker_heard_of, client.written) == ([], [])


async def test_markers_of_classic_topics_pass(client: Client) -> None:
    assert await client.send(1, marker(7, classic=[0])) == {}
    assert len(client.forwarded) == 1
