"""AddPartitionsToTxn waits until diskless partitions are enlisted."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.client.rights import ANY_ID, DESCRIBE, RIGHTS, WRITE, ClientRights, Rights, _Known
from proxy.handlers.add_partitions_to_txn import AddPartitionsToTxn
from proxy.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    OPERATION_NOT_ATTEMPTED,
)
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.transactions.enlistments import AddedPartitions
from proxy.wire.cold import read_response
from tests.registry_model import ModelTopicRegistry
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import settings_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

ADD_PARTITIONS = 24
DISKLESS, CLASSIC, FORBIDDEN, RESERVED = "diskless", "classic", "forbidden", "reserved"


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
        self.enlisted: list[AddedPartitions] = []
        self.enlists = True
        self.handlers = AddPartitionsToTxn(
            topics=topics,
            rights=ClientRights(settings_of(), lambda: 0.0),
            enlistments=self,  # type: ignore[arg-type]
            throttled_log=ThrottledLog(lambda: 0.0),
        )
        self.broker_error = NONE
        self.broker_heard_of: list[str] = []

    async def enlist(self, client: Any, request: Any, added: AddedPartitions) -> bool:
        """Stand for `Enlistments.enlist`."""
        assert client is self
        self.enlisted.append(added)
        return self.enlists

    def _broker(self, api_key: int, version: int, body: bytes) -> bytes:
        asked = decode(request_type(api_key, version), body)
        if version < 4:
            named = [topic["name"] for topic in asked["v3_and_below_topics"]]
            transaction = {"transactional_id": "", "topics": asked["v3_and_below_topics"]}
            answer = {"results_by_topic_v3_and_below": _accepted(transaction, self.broker_error)["topic_results"]}
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
        answer = await self.answer(self.handlers.add_partitions_to_txn, request_of(api_key, version, body))
        if answer is None:
            return {}
        read_response(api_key, version, memoryview(answer))
        return decode(response_type(api_key, version), answer)


def _accepted(transaction: dict[str, Any], error_code: int = NONE) -> dict[str, Any]:
    topics = [
        {
            "name": one["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": error_code} for index in one["partitions"]
            ],
        }
        for one in transaction["topics"]
    ]
    return {"transactional_id": transaction["transactional_id"], "topic_results": topics}


def _errors(topic_results: list[dict[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    return {
        topic["name"]: [(one["partition_index"], one["partition_error_code"]) for one in topic["results_by_partition"]]
        for topic in topic_results
    }


def topic(name: str, *partitions: int) -> dict[str, Any]:
    return {"name": name, "partitions": list(partitions)}


@pytest.fixture
async def lease() -> dict[str, bool]:
    return {"runs": True}


@pytest.fixture
async def client(lease: dict[str, bool]) -> Client:
    registry = ModelTopicRegistry()
    for name in (DISKLESS, FORBIDDEN):
        await registry.reserve(name, 3, {}, "owner")
        await registry.activate(name, name.encode().ljust(16), 3)
    await registry.reserve(RESERVED, 3, {}, "owner")
    topics = Topics(registry, lease_runs=lambda: lease["runs"])
    await topics.load()
    return Client(topics)


NAMED = [topic(CLASSIC, 0, 1), topic(DISKLESS, 2)]
IDS = {
    "v3_and_below_transactional_id": "orders",
    "v3_and_below_producer_id": 2**40,
    "v3_and_below_producer_epoch": 3,
}


@pytest.mark.parametrize("version", range(4))
async def test_diskless_partitions_are_enlisted_before_the_answer(client: Client, version: int) -> None:
    answer = await client.send(ADD_PARTITIONS, version, v3_and_below_topics=NAMED, **IDS)
    assert _errors(answer["results_by_topic_v3_and_below"]) == {CLASSIC: [(0, NONE), (1, NONE)], DISKLESS: [(2, NONE)]}
    assert client.broker_heard_of == [CLASSIC, DISKLESS]
    assert client.enlisted == [AddedPartitions("orders", 2**40, 3, {(DISKLESS, 2): DISKLESS.encode().ljust(16)})]


@pytest.mark.parametrize("version", range(4))
async def test_in_doubt_the_whole_request_is_retried(client: Client, version: int) -> None:
    client.enlists = False
    answer = await client.send(ADD_PARTITIONS, version, v3_and_below_topics=NAMED, **IDS)
    assert _errors(answer["results_by_topic_v3_and_below"]) == {
        CLASSIC: [(0, CONCURRENT_TRANSACTIONS), (1, CONCURRENT_TRANSACTIONS)],
        DISKLESS: [(2, CONCURRENT_TRANSACTIONS)],
    }


async def test_what_the_broker_rejects_is_not_enlisted(client: Client) -> None:
    client.broker_error = INVALID_PRODUCER_EPOCH
    answer = await client.send(ADD_PARTITIONS, 3, v3_and_below_topics=[topic(DISKLESS, 2)], **IDS)
    assert _errors(answer["results_by_topic_v3_and_below"]) == {DISKLESS: [(2, INVALID_PRODUCER_EPOCH)]}
    assert client.enlisted == []


async def test_a_topic_that_is_not_live_is_retried(client: Client) -> None:
    named = [topic(RESERVED, 0), topic(DISKLESS, 1)]
    answer = await client.send(ADD_PARTITIONS, 3, v3_and_below_topics=named)
    assert _errors(answer["results_by_topic_v3_and_below"]) == {
        RESERVED: [(0, COORDINATOR_LOAD_IN_PROGRESS)],
        DISKLESS: [(1, OPERATION_NOT_ATTEMPTED)],
    }
    assert (client.broker_heard_of, client.enlisted) == ([], [])


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
    assert (client.forwarded, client.broker_heard_of) == ([], [])
