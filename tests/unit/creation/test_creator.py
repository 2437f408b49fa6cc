"""A reservation whose creation does not go as planned."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import TopicNotReserved
from proxy.creation.creator import _Creating
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_request
from tests.registry_model import ModelTopicRegistry
from tests.unit.creation.made import creator_of

SHADOW = uuid.UUID(int=7)


class Reservations:
    """Notes what it is asked to do."""

    def __init__(self, *, known: bool = True, lost: bool = False) -> None:
        self.done: list[str] = []
        self._known, self._lost = known, lost

    async def undo(self, name: str) -> None:
        self.done.append("undone")

    async def settle(self, name: str, wait_s: float, topic_id: bytes | None = None) -> bool:
        self.done.append("settled" if topic_id is None else f"settled as {topic_id.hex()[-1]}")
        return self._known

    async def open(self, name: str, topic_id: bytes, partitions: int) -> None:
        if self._lost:
            raise TopicNotReserved("gone")
        self.done.append("opened")

    def leave(self, name: str, *, never_made: bool = False) -> None:
        self.done.append("left" + ", never made" * never_made)

    def take_up(self, name: str) -> None:
        self.done.append("taken up")


def creating(reservations: Reservations, **more: Any) -> _Creating:
    creator = creator_of(more.pop("settings", None), reservations, **more)
    client: Any = SimpleNamespace()
    request: Any = SimpleNamespace(api_key=19, api_version=7)
    asked = CreateTopicsRequest(topics=(), timeout=milliseconds(1), validate_only=False)
    made = _Creating(creator, client, request, asked)
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
    assert reservations.done == ["settled as 7", "left"]


async def test_a_shadow_whose_reservation_is_gone_is_deleted_by_its_id() -> None:
    reservations = Reservations(lost=True)
    made = creating(reservations)
    deleted = []

    async def ask(request: Any, api_key: int, api_version: int, body: bytes) -> memoryview:
        assert (api_key, api_version) == (20, 6)
        deleted.extend(read_request(api_key, api_version, body).topics)
        result = DeletableTopicResult(name=None, topic_id=SHADOW, error_code=ErrorCode.none, error_message=None)
        return memoryview(encode(DeleteTopicsResponse(throttle_time=milliseconds(0), responses=(result,))))

    made._client.ask = ask  # type: ignore[method-assign,assignment]
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
    assert (list(registry.topics), reservations.done) == (["a"], ["left, never made"])
    assert made._results["a"].error_code is ErrorCode.request_timed_out


async def test_a_name_that_this_process_is_busy_with_is_taken() -> None:
    reservations = Reservations()
    registry = ModelTopicRegistry()
    made = creating(reservations, topics=SimpleNamespace(registry=registry), fleet=SimpleNamespace(identity="owner"))
    assert await made._reserve(set()) == set()
    assert registry.topics == {}
    assert made._results["a"].error_code is ErrorCode.topic_already_exists


async def test_the_longest_throttle_time_of_all_requests_is_returned() -> None:
    waits_ms = [10, 5_000, 3_000]

    async def ask(*_: object, **__: object) -> memoryview:
        throttle = milliseconds(waits_ms.pop(0))
        return memoryview(encode(CreateTopicsResponse(throttle_time=throttle, topics=(answered(ErrorCode.none),))))

    async def make(*_: object, **__: object) -> tuple[dict[str, Any], Any]:
        return {"a": answered(ErrorCode.none)}, milliseconds(waits_ms.pop(0))

    settings = SimpleNamespace(fleet=SimpleNamespace(create_topic_timeout_ms=1))
    made = creating(Reservations(), settings=settings, under_replicated=SimpleNamespace(make=make))
    made._client.ask = ask  # type: ignore[method-assign,assignment]
    await made._ask(list(made._asked.values()), validate_only=True)
    waits_ms.append(1)
    await made._ask(list(made._asked.values()), validate_only=False)
    made._parsed = replace(made._parsed, validate_only=True)
    made._wanted.clear()
    made._asked.clear()
    assert (await made.answer()).throttle_time.total_seconds() == 5


async def test_a_name_whose_deletion_this_proxy_has_not_heard_of_is_free() -> None:
    registry = ModelTopicRegistry()
    await registry.reserve("a", 1, {}, "owner")
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    await registry.remove("a")
    sent: list[Any] = []

    async def tried(asked: list[Any], *, validate_only: bool) -> dict[str, Any]:
        sent.extend(asked)
        return {"a": answered(ErrorCode.none)}

    settings = SimpleNamespace(default_diskless_topics=(), diskless_system_enable=True)
    made = creating(Reservations(), topics=topics, settings=settings)
    made._asked.clear()
    made._wanted.clear()
    config = CreatableTopicConfig(name="diskless.enable", value="true")
    bytes_config = CreatableTopicConfig(name="segment.bytes", value="abc")
    topic = CreatableTopic(
        name=TopicName("a"),
        num_partitions=i32(1),
        replication_factor=i16(1),
        assignments=(),
        configs=(config, bytes_config),
    )
    made._parsed = replace(made._parsed, topics=(topic,), validate_only=True)
    made._order = ["a"]
    made._ask = tried  # type: ignore[method-assign,assignment]
    (result,) = await made.results()
    assert result.error_code is ErrorCode.none
    assert [one.configs for one in sent] == [(bytes_config,)], "brokers are asked about what the client sent"
