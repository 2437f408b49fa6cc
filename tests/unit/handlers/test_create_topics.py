"""What becomes of a reservation when its creation goes another way than it should."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicResult
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.registry import TopicNotReserved
from proxy.handlers.create_topics import _Creating
from proxy.wire.cold import encode, milliseconds, read_request
from tests.coordinator_model import ModelTopicRegistry

SHADOW = uuid.UUID(int=7)


class Reservations:
    """Notes what it is asked to do."""

    def __init__(self, *, known: bool = True, lost: bool = False) -> None:
        self.done: list[str] = []
        self._known, self._lost = known, lost

    async def undo(self, name: str) -> None:
        self.done.append("undone")

    async def settle(self, name: str, wait_s: float) -> bool:
        self.done.append("settled")
        return self._known

    async def open(self, name: str, topic_id: bytes, partitions: int) -> None:
        if self._lost:
            raise TopicNotReserved("gone")
        self.done.append("opened")

    def leave(self, name: str) -> None:
        self.done.append("left")

    def take_up(self, name: str) -> None:
        self.done.append("taken up")


def creating(reservations: Reservations, **more: Any) -> _Creating:
    context = SimpleNamespace(reservations=reservations, **more)
    connection: Any = SimpleNamespace(context=context)
    request: Any = SimpleNamespace(api_key=19, api_version=7)
    asked = CreateTopicsRequest(topics=(), timeout=milliseconds(1), validate_only=False)
    made = _Creating(connection, request, asked)
    made._asked["a"] = CreatableTopic(
        name=TopicName("a"), num_partitions=i32(2), replication_factor=i16(1), assignments=(), configs=()
    )
    made._wanted["a"] = {}
    return made


def answered(error: ErrorCode, topic_id: uuid.UUID | None = None, partitions: int = -1) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName("a"),
        topic_id=topic_id,
        error_code=error,
        error_message=None,
        configs=None,
        num_partitions=i32(partitions),
    )


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (ErrorCode.request_timed_out, "settled"),
        (ErrorCode.unknown_server_error, "settled"),
        (ErrorCode.network_exception, "settled"),
        (ErrorCode.topic_already_exists, "settled"),
        (ErrorCode.not_controller, "settled"),
        (ErrorCode.policy_violation, "undone"),
    ],
)
async def test_only_a_shadow_that_was_surely_not_made_is_undone(error: ErrorCode, done: str) -> None:
    reservations = Reservations()
    result = answered(error)
    assert await creating(reservations)._open("a", result) == result
    assert reservations.done == [done]


async def test_a_shadow_that_may_still_come_is_settled_later() -> None:
    reservations = Reservations(known=False)
    await creating(reservations)._open("a", answered(ErrorCode.request_timed_out))
    assert reservations.done == ["settled", "left"]


async def test_a_shadow_that_was_made_and_is_not_seen_yet_is_settled_later() -> None:
    reservations = Reservations(known=False)
    made = creating(reservations)
    made._asked.clear()
    made._asked["a"] = CreatableTopic(
        name=TopicName("a"), num_partitions=i32(-1), replication_factor=i16(1), assignments=(), configs=()
    )
    result = await made._open("a", answered(ErrorCode.none, SHADOW))
    assert result.error_code is ErrorCode.request_timed_out
    assert reservations.done == ["settled", "left"]


async def test_a_shadow_whose_reservation_is_gone_is_deleted_by_its_id() -> None:
    reservations = Reservations(lost=True)
    made = creating(reservations)
    deleted = []

    async def ask(request: Any, api_key: int, api_version: int, body: bytes) -> memoryview:
        assert (api_key, api_version) == (20, 6)
        deleted.extend(read_request(api_key, api_version, body).topics)
        result = DeletableTopicResult(name=None, topic_id=SHADOW, error_code=ErrorCode.none, error_message=None)
        return memoryview(encode(DeleteTopicsResponse(throttle_time=milliseconds(0), responses=(result,))))

    made._connection.ask = ask  # type: ignore[method-assign,assignment]
    result = await made._open("a", answered(ErrorCode.none, SHADOW, 2))
    assert result.error_code is ErrorCode.request_timed_out
    assert [(topic.name, topic.topic_id) for topic in deleted] == [(None, SHADOW)]


async def test_a_reservation_that_nobody_knows_the_outcome_of_is_settled_later() -> None:
    class Lossy(ModelTopicRegistry):
        async def reserve(self, name: str, partitions: int, configs: dict[str, str], owner: str) -> int:
            await super().reserve(name, partitions, configs, owner)
            raise CoordinatorUnavailable("no answer")

    reservations = Reservations()
    registry = Lossy()
    made = creating(reservations, topics=SimpleNamespace(registry=registry), fleet=SimpleNamespace(identity="owner"))
    assert await made._reserve({"a"}) == set()
    assert (list(registry.topics), reservations.done) == (["a"], ["left"])
    assert made._results["a"].error_code is ErrorCode.request_timed_out


async def test_a_name_that_this_process_is_busy_with_is_taken() -> None:
    reservations = Reservations()
    registry = ModelTopicRegistry()
    made = creating(reservations, topics=SimpleNamespace(registry=registry), fleet=SimpleNamespace(identity="owner"))
    assert await made._reserve(set()) == set()
    assert registry.topics == {}
    assert made._results["a"].error_code is ErrorCode.topic_already_exists
