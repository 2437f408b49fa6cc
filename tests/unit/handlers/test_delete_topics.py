"""Remove a diskless topic that has changed since the request for its deletion arrived."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.request import Request
from proxy.client.rights import DELETE, DESCRIBE
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.creation.reservations import Reservations
from proxy.handlers.delete_topics import _forget, _is_gone, delete_topics
from proxy.housekeeping.shadows import Shadows
from proxy.protocol.api_keys import METADATA
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.metadata import MetadataTopic
from tests.coordinator_model import ModelCoordinator
from tests.registry_model import ModelTopicRegistry
from tests.unit.creation.made import reservations_of

OLD, NEW = b"1" * 16, b"2" * 16


def connection() -> Any:
    registry = ModelTopicRegistry()
    coordinates = SimpleNamespace(forget=lambda topic_id: None)
    context = SimpleNamespace(
        coordinator=ModelCoordinator(),
        topics=Topics(registry, lease_runs=lambda: True),
        reader=SimpleNamespace(coordinates=coordinates),
    )
    context.reservations = reservations_of(  # type: ignore[attr-defined]
        Reservations, registry, topics=context.topics, coordinator=context.coordinator
    )
    return SimpleNamespace(context=context)


async def make(context: Any, topic_id: bytes, partitions: int) -> None:
    if context.topics.registry.topics.get("a") is None:
        await context.topics.registry.reserve("a", partitions, {}, "owner")
    await context.coordinator.create_logs(topic_id, range(partitions))
    await context.topics.registry.activate("a", topic_id, partitions)


async def test_a_new_topic_of_the_same_name_stays() -> None:
    client = connection()
    context = client.context
    await make(context, OLD, 1)
    await context.topics.load()
    entry = context.topics.find("a")
    await context.topics.registry.remove("a")
    await make(context, NEW, 1)
    assert await _forget(client, entry) == 0
    assert [(topic.topic_id, topic.state) for topic in context.topics.all()] == [(NEW, "live")]
    assert await context.coordinator.describe(OLD, [0]) == [None]
    assert await context.coordinator.describe(NEW, [0]) != [None]


@pytest.mark.parametrize("error_code", [3, 100])
@pytest.mark.parametrize(
    ("known_to", "gone"), [((), True), ((1,), False), ((3,), False), ((1, 2, 3), False), (None, False)]
)
async def test_a_topic_that_any_broker_knows_still_exists(
    error_code: int, known_to: tuple[int, ...] | None, gone: bool
) -> None:
    class Asking(Reservations):
        async def shadow(self, name: str, connection: Any = None) -> MetadataTopic | None:
            if known_to is None:
                raise BrokerUnreachable("away")
            return MetadataTopic(0, name, OLD, 1, -1) if connection.node_id in known_to else None

    cluster = SimpleNamespace(
        view=SimpleNamespace(brokers=dict.fromkeys((1, 2, 3))),
        connection_to=lambda node_id: SimpleNamespace(node_id=node_id, close=lambda: None),
    )
    context: Any = SimpleNamespace(cluster=cluster)
    context.reservations = reservations_of(Asking, ModelTopicRegistry(), cluster=cluster)
    client: Any = SimpleNamespace(context=context)
    state = "live" if error_code == 3 else "deleting"
    assert await _is_gone(client, DisklessTopic("a", OLD, 1, state), error_code) is gone
    assert await _is_gone(client, DisklessTopic("a", NEW, 1, state), error_code) is (known_to is not None)


def missing(version: int, operations: int) -> memoryview:
    """Return the Metadata answer for a topic `a` that brokers lack, with the client's rights for that name."""
    schema: Any = load_response_schema(METADATA, version)
    topic_type = nested(schema, "topics")
    values = {"topic_id": None} if "topic_id" in topic_type.__slots__ else {}
    topic = topic_type(
        error_code=ErrorCode.unknown_topic_or_partition,
        name="a",
        partitions=(),
        topic_authorized_operations=operations,
        **values,
    )
    return memoryview(encode(schema(throttle_time=milliseconds(0), brokers=(), topics=(topic,))))


def deleting(
    registry: ModelTopicRegistry, cluster_id: str, broker_says: ErrorCode = ErrorCode.none, operations: int = 0
) -> tuple[Any, Topics, list[bytes]]:
    """Return a client of a proxy whose brokers report that they have just deleted a topic `a`, and the client's answer.

    `operations` are the client's rights for a topic of that name, which the brokers lack.
    """
    answer_parts: list[bytes] = []
    topics = Topics(registry, lease_runs=lambda: True)
    context: Any = SimpleNamespace(
        coordinator=ModelCoordinator(),
        topics=topics,
        cluster=SimpleNamespace(cluster_id=cluster_id),
        reader=SimpleNamespace(coordinates=SimpleNamespace(forget=lambda topic_id: None)),
    )
    context.reservations = reservations_of(Reservations, registry, topics=topics, coordinator=context.coordinator)
    context.housekeeper = SimpleNamespace(shadows=Shadows(context.cluster, topics, context.reservations, confirm_s=1.0))

    async def ask(request: Any, api_key: int, api_version: int, body: Any) -> memoryview:
        if api_key == METADATA:
            return missing(api_version, operations)
        by_id = broker_says == ErrorCode.unknown_topic_id
        result = DeletableTopicResult(
            name=None if by_id else TopicName("a"),
            topic_id=UUID(bytes=OLD) if by_id else None,
            error_code=broker_says,
            error_message=None,
        )
        return memoryview(encode(DeleteTopicsResponse(throttle_time=milliseconds(0), responses=(result,))))

    slot = SimpleNamespace(fill=answer_parts.extend)
    return SimpleNamespace(context=context, ask=ask, open_slot=lambda request: slot), topics, answer_parts


async def delete_a(client: Any, topic_id: bytes | None = None) -> None:
    named = DeleteTopicState(
        name=None if topic_id else TopicName("a"), topic_id=UUID(bytes=topic_id) if topic_id else None
    )
    asked = DeleteTopicsRequest(topics=(named,), timeout=milliseconds(1))
    body = memoryview(encode(asked))
    waiting = delete_topics(client, Request(20, 6, 1, "a", body, body))
    assert waiting is not None
    await waiting


def code(answer_parts: list[bytes]) -> int:
    response: Any = read_response(20, 6, memoryview(b"".join(answer_parts)))
    value: int = response.responses[0].error_code.value
    return value


@pytest.mark.parametrize(("cluster_id", "error_code"), [("ours", 0), ("theirs", 7), ("", 7)])
async def test_brokers_of_another_cluster_delete_no_diskless_topic(cluster_id: str, error_code: int) -> None:
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    client, topics, answer_parts = deleting(registry, cluster_id)
    await make(client.context, OLD, 1)
    await topics.load()
    await delete_a(client)
    assert code(answer_parts) == error_code
    assert (registry.topics.get("a") is None) == (error_code == 0)


@pytest.mark.parametrize("broker_says", [ErrorCode.topic_authorization_failed, ErrorCode.throttling_quota_exceeded])
async def test_an_error_of_the_brokers_is_returned_from_any_cluster(broker_says: ErrorCode) -> None:
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    client, topics, answer_parts = deleting(registry, "theirs", broker_says)
    await make(client.context, OLD, 1)
    await topics.load()
    await delete_a(client)
    assert code(answer_parts) == broker_says.value


async def test_a_topic_that_another_proxy_has_just_opened_is_deleted_whole() -> None:
    registry = ModelTopicRegistry()
    client, topics, answer_parts = deleting(registry, "ours")
    await registry.reserve("a", 1, {}, "owner")
    await topics.load()
    await make(client.context, OLD, 1)
    entry = topics.find("a")
    assert entry is not None
    assert entry.state == "reserved", "it has not heard of it yet"
    await delete_a(client)
    assert (code(answer_parts), registry.topics.get("a")) == (0, None)


async def test_no_topic_counts_as_gone_while_no_broker_is_known() -> None:
    context: Any = SimpleNamespace(cluster=SimpleNamespace(view=SimpleNamespace(brokers={})))
    context.reservations = reservations_of(Reservations, ModelTopicRegistry(), cluster=context.cluster)
    client: Any = SimpleNamespace(context=context)
    assert await _is_gone(client, DisklessTopic("a", OLD, 1, "live"), 3) is False


async def test_partitions_that_came_meanwhile_go_too() -> None:
    client = connection()
    context = client.context
    await make(context, OLD, 1)
    await context.topics.load()
    entry = context.topics.find("a")
    await make(context, OLD, 3)
    assert await _forget(client, entry) == 0
    assert await context.coordinator.describe(OLD, [0, 1, 2]) == [None, None, None]
    assert context.topics.all() == ()


@pytest.mark.parametrize("state", ["live", "deleting"])
async def test_an_id_that_brokers_do_not_know_ends_no_log_that_nobody_was_allowed_to_end(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers check no rights before this error, and a missing placeholder topic may come back."""
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    client, topics, answer_parts = deleting(registry, "ours", ErrorCode.unknown_topic_id)
    await make(client.context, OLD, 1)
    if state == "deleting":
        await registry.begin_delete("a", OLD)
    await topics.load()

    async def nowhere(name: str) -> None:
        return None

    monkeypatch.setattr(client.context.reservations, "shadow_anywhere", nowhere)
    await delete_a(client, OLD)
    assert code(answer_parts) == (100 if state == "live" else 0)
    assert (registry.topics.get("a") is None) == (state == "deleting")


@pytest.mark.parametrize(
    ("state", "operations", "error_code"),
    [("live", DESCRIBE, 29), ("live", DESCRIBE | DELETE, 0), ("live", -(2**31), 29), ("deleting", DESCRIBE, 0)],
)
async def test_a_missing_placeholder_does_not_replace_the_right_to_delete(
    state: str, operations: int, error_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a client that may only describe a topic, the controller answers that a missing one is unknown."""
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    client, topics, answer_parts = deleting(registry, "ours", ErrorCode.unknown_topic_or_partition, operations)
    await make(client.context, OLD, 1)
    if state == "deleting":
        await registry.begin_delete("a", OLD)
    await topics.load()

    async def nowhere(name: str) -> None:
        return None

    monkeypatch.setattr(client.context.reservations, "shadow_anywhere", nowhere)
    await delete_a(client)
    assert code(answer_parts) == error_code
    assert (registry.topics.get("a") is None) == (error_code == 0)
    assert (await client.context.coordinator.describe(OLD, [0]) == [None]) == (error_code == 0)
