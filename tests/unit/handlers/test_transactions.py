"""AddPartitionsToTxn and WriteTxnMarkers: no broker is asked about a diskless partition, and clients get an error."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from proxy.client.rights import ANY_ID, DESCRIBE, RIGHTS, WRITE, ClientRights, Rights, _Known
from proxy.handlers.transactions import Transactions
from proxy.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
)
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import read_response
from tests.registry_model import ModelTopicRegistry
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import settings_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

ADD_PARTITIONS, WRITE_MARKERS = 24, 27
DISKLESS, CLASSIC, FORBIDDEN = "diskless", "classic", "forbidden"


class Client(ClientDouble):
    """A client whose broker accepts everything."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(self._broker)
        rights = Rights(60.0, lambda: 0.0)
        rights._known = {
            DISKLESS: _Known(60.0, NONE, WRITE | DESCRIBE, ANY_ID),
            FORBIDDEN: _Known(60.0, NONE, DESCRIBE, ANY_ID),
        }
        self.session[RIGHTS] = rights
        self.handlers = Transactions(
            topics=topics,
            rights=ClientRights(settings_of(), lambda: 0.0),
            throttled_log=ThrottledLog(lambda: 0.0),
        )
        self.broker_heard_of: list[str] = []

    def _broker(self, api_key: int, version: int, body: bytes) -> bytes:
        asked = decode(request_type(api_key, version), body)
        if api_key == WRITE_MARKERS:
            named = [topic["name"] for marker in asked["markers"] for topic in marker["topics"]]
            answer = {"markers": [_accepted_marker(marker) for marker in asked["markers"]]}
        else:
            named = [topic["name"] for one in asked["transactions"] for topic in one["topics"]]
            answer = {"results_by_transaction": [_accepted(one) for one in asked["transactions"]]}
        self.broker_heard_of += named
        entity = response_type(api_key, version)
        return encode(entity, filled(entity, answer))

    async def send(self, api_key: int, version: int, **values: Any) -> dict[str, Any]:
        """The proxy's own answer; empty if the request went to the broker as it came."""
        entity = request_type(api_key, version)
        body = encode(entity, filled(entity, values))
        handlers = {ADD_PARTITIONS: self.handlers.add_partitions_to_txn, WRITE_MARKERS: self.handlers.write_txn_markers}
        answer = await self.answer(handlers[api_key], request_of(api_key, version, body))
        if answer is None:
            return {}
        read_response(api_key, version, memoryview(answer))
        return decode(response_type(api_key, version), answer)


def _accepted(transaction: dict[str, Any]) -> dict[str, Any]:
    topics = [
        {"name": one["name"], "results_by_partition": [{"partition_index": index} for index in one["partitions"]]}
        for one in transaction["topics"]
    ]
    return {"transactional_id": transaction["transactional_id"], "topic_results": topics}


def _accepted_marker(marker: dict[str, Any]) -> dict[str, Any]:
    topics = [
        {"name": one["name"], "partitions": [{"partition_index": index} for index in one["partition_indexes"]]}
        for one in marker["topics"]
    ]
    return {"producer_id": marker["producer_id"], "topics": topics}


def _errors(topic_results: list[dict[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    return {
        topic["name"]: [(one["partition_index"], one["partition_error_code"]) for one in topic["results_by_partition"]]
        for topic in topic_results
    }


def topic(name: str, *partitions: int) -> dict[str, Any]:
    return {"name": name, "partitions": list(partitions), "partition_indexes": list(partitions)}


@pytest.fixture
async def lease() -> dict[str, bool]:
    return {"runs": True}


@pytest.fixture
async def client(lease: dict[str, bool]) -> Client:
    registry = ModelTopicRegistry()
    for name in (DISKLESS, FORBIDDEN):
        await registry.reserve(name, 3, {}, "owner")
        await registry.activate(name, name.encode().ljust(16), 3)
    topics = Topics(registry, lease_runs=lambda: lease["runs"])
    await topics.load()
    return Client(topics)


@pytest.mark.parametrize("version", range(4))
async def test_a_transaction_with_a_diskless_partition_fails_as_a_whole(client: Client, version: int) -> None:
    named = [topic(CLASSIC, 0, 1), topic(DISKLESS, 2), topic(FORBIDDEN, 0)]
    with structlog.testing.capture_logs() as logged:
        answer = await client.send(ADD_PARTITIONS, version, v3_and_below_topics=named)
    assert _errors(answer["results_by_topic_v3_and_below"]) == {
        CLASSIC: [(0, OPERATION_NOT_ATTEMPTED), (1, OPERATION_NOT_ATTEMPTED)],
        DISKLESS: [(2, INVALID_TOPIC_EXCEPTION)],
        FORBIDDEN: [(0, TOPIC_AUTHORIZATION_FAILED)],
    }
    assert (client.forwarded, client.broker_heard_of) == ([], [])
    assert [(line["event"], line["topics"]) for line in logged] == [("transaction_refused", [DISKLESS])]


@pytest.mark.parametrize("version", [4, 5])
async def test_each_of_several_transactions_fails_by_itself(client: Client, version: int) -> None:
    transactions = [
        {"transactional_id": "mixed", "topics": [topic(CLASSIC, 0), topic(DISKLESS, 1)]},
        {"transactional_id": "classic", "topics": [topic(CLASSIC, 2)]},
    ]
    answer = await client.send(ADD_PARTITIONS, version, transactions=transactions)
    results = {one["transactional_id"]: _errors(one["topic_results"]) for one in answer["results_by_transaction"]}
    assert results == {
        "classic": {CLASSIC: [(2, NONE)]},
        "mixed": {CLASSIC: [(0, OPERATION_NOT_ATTEMPTED)], DISKLESS: [(1, INVALID_TOPIC_EXCEPTION)]},
    }
    assert client.broker_heard_of == [CLASSIC]
    del transactions[1]
    answer = await client.send(ADD_PARTITIONS, version, transactions=transactions)
    assert [one["transactional_id"] for one in answer["results_by_transaction"]] == ["mixed"]
    assert client.broker_heard_of == [CLASSIC]


@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_of_classic_topics_goes_to_the_broker(client: Client, version: int) -> None:
    named = [topic(CLASSIC, 0)]
    transactions = [{"transactional_id": "a", "topics": named}]
    values = {"transactions": transactions} if version >= 4 else {"v3_and_below_topics": named}
    assert await client.send(ADD_PARTITIONS, version, **values) == {}
    assert len(client.forwarded) == 1


async def test_a_topic_that_may_be_diskless_is_retried(client: Client, lease: dict[str, bool]) -> None:
    lease["runs"] = False
    answer = await client.send(ADD_PARTITIONS, 3, v3_and_below_topics=[topic("unseen", 0)])
    assert _errors(answer["results_by_topic_v3_and_below"]) == {"unseen": [(0, COORDINATOR_LOAD_IN_PROGRESS)]}
    markers = [{"producer_id": 7, "topics": [topic("unseen", 0)]}]
    (marker,) = (await client.send(WRITE_MARKERS, 1, markers=markers))["markers"]
    assert marker["topics"][0]["partitions"] == [{"partition_index": 0, "error_code": NOT_LEADER_OR_FOLLOWER}]
    assert (client.forwarded, client.broker_heard_of) == ([], [])


@pytest.mark.parametrize("version", [1, 2])
async def test_markers_go_to_classic_partitions_only(client: Client, version: int) -> None:
    markers = [
        {"producer_id": 7, "topics": [topic(CLASSIC, 0), topic(DISKLESS, 1, 2)]},
        {"producer_id": 8, "topics": [topic(FORBIDDEN, 0)]},
    ]
    answer = await client.send(WRITE_MARKERS, version, markers=markers)
    errors = {
        (marker["producer_id"], one["name"]): [partition["error_code"] for partition in one["partitions"]]
        for marker in answer["markers"]
        for one in marker["topics"]
    }
    assert errors == {
        (7, CLASSIC): [NONE],
        (7, DISKLESS): [INVALID_TOPIC_EXCEPTION] * 2,
        (8, FORBIDDEN): [TOPIC_AUTHORIZATION_FAILED],
    }
    assert client.broker_heard_of == [CLASSIC]
    assert await client.send(WRITE_MARKERS, version, markers=[{"producer_id": 7, "topics": [topic(CLASSIC, 0)]}]) == {}
    assert len(client.forwarded) == 1
