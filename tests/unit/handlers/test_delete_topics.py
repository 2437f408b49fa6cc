"""Remove a diskless topic that has changed since the request for its deletion arrived."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from proxy.brokers.upstream import BrokerUnreachable
from proxy.client.rights import DELETE, DESCRIBE
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.creation.reservations import Reservations
from proxy.handlers.delete_topics import DeleteTopics
from proxy.housekeeping.shadows import Shadows
from proxy.protocol.api_keys import METADATA
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, nested, read_response
from proxy.wire.metadata import Broker, MetadataTopic
from tests.coordinator_model import ModelCoordinator
from tests.registry_model import ModelTopicRegistry
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.creation.made import reservations_of

OLD, NEW = b"1" * 16, b"2" * 16


class Deleting:
    """The handler on an empty cluster, with registry and coordinator in memory."""

    def __init__(
        self, registry: ModelTopicRegistry, cluster: Any = None, *, kind: type[Reservations] = Reservations
    ) -> None:
        self.registry = registry
        self.coordinator = ModelCoordinator()
        self.topics = Topics(registry, lease_runs=lambda: True)
        self.cluster: Any = cluster or Brokers({})
        self.reservations = reservations_of(
            kind, registry, topics=self.topics, coordinator=self.coordinator, cluster=self.cluster
        )
        self.handler = DeleteTopics(
            topics=self.topics,
            reservations=self.reservations,
            shadows=Shadows(self.cluster, self.topics, self.reservations, confirm_s=1.0),
            cluster=self.cluster,
            throttled_log=ThrottledLog(lambda: 0.0),
        )

    async def make(self, topic_id: bytes, partitions: int) -> None:
        if self.registry.topics.get("a") is None:
            await self.registry.reserve("a", partitions, {}, "owner")
        await self.coordinator.create_logs(topic_id, range(partitions))
        await self.registry.activate("a", topic_id, partitions)


async def test_a_new_topic_of_the_same_name_stays() -> None:
    deleting = Deleting(ModelTopicRegistry())
    await deleting.make(OLD, 1)
    await deleting.topics.load()
    entry = deleting.topics.find("a")
    assert entry is not None
    await deleting.registry.remove("a")
    await deleting.make(NEW, 1)
    assert await deleting.handler._forget(entry) == 0
    assert [(topic.topic_id, topic.state) for topic in deleting.topics.all()] == [(NEW, "live")]
    assert await deleting.coordinator.describe(OLD, [0]) == [None]
    assert await deleting.coordinator.describe(NEW, [0]) != [None]


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

    cluster: Any = Connectable(dict.fromkeys((1, 2, 3), Broker(1, "broker", 9092, None)))
    handler = Deleting(ModelTopicRegistry(), cluster, kind=Asking).handler
    state = "live" if error_code == 3 else "deleting"
    assert await handler._is_gone(DisklessTopic("a", OLD, 1, state), error_code) is gone
    assert await handler._is_gone(DisklessTopic("a", NEW, 1, state), error_code) is (known_to is not None)


class Connectable(Brokers):
    """Brokers of which each has a connection of its own."""

    def __init__(self, brokers: dict[int, Broker], node_id: int | None = None) -> None:
        super().__init__(brokers)
        self.node_id = node_id

    def connection_to(self, node_id: int) -> Connectable:
        return Connectable({}, node_id)

    def close(self) -> None:
        pass


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


def asked(
    registry: ModelTopicRegistry, cluster_id: str, broker_says: ErrorCode = ErrorCode.none, operations: int = 0
) -> tuple[Deleting, ClientDouble]:
    """Return a client of a proxy whose brokers report that they have just deleted a topic `a`.

    `operations` are the client's rights for a topic of that name, which the brokers lack.
    """
    deleting = Deleting(registry)
    deleting.cluster.cluster_id = cluster_id

    def broker(api_key: int, api_version: int, body: bytes) -> Any:
        if api_key == METADATA:
            return missing(api_version, operations)
        by_id = broker_says == ErrorCode.unknown_topic_id
        result = DeletableTopicResult(
            name=None if by_id else TopicName("a"),
            topic_id=UUID(bytes=OLD) if by_id else None,
            error_code=broker_says,
            error_message=None,
        )
        return DeleteTopicsResponse(throttle_time=milliseconds(0), responses=(result,))

    return deleting, ClientDouble(broker)


async def delete_a(deleting: Deleting, client: ClientDouble, topic_id: bytes | None = None) -> int:
    """Return the error code of the answer."""
    named = DeleteTopicState(
        name=None if topic_id else TopicName("a"), topic_id=UUID(bytes=topic_id) if topic_id else None
    )
    body = encode(DeleteTopicsRequest(topics=(named,), timeout=milliseconds(1)))
    answer = await client.answer(deleting.handler.delete_topics, request_of(20, 6, body))
    assert answer is not None
    response: Any = read_response(20, 6, memoryview(answer))
    value: int = response.responses[0].error_code.value
    return value


@pytest.mark.parametrize(("cluster_id", "error_code"), [("ours", 0), ("theirs", 7), ("", 7)])
async def test_brokers_of_another_cluster_delete_no_diskless_topic(cluster_id: str, error_code: int) -> None:
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    deleting, client = asked(registry, cluster_id)
    await deleting.make(OLD, 1)
    await deleting.topics.load()
    assert await delete_a(deleting, client) == error_code
    assert (registry.topics.get("a") is None) == (error_code == 0)


@pytest.mark.parametrize("broker_says", [ErrorCode.topic_authorization_failed, ErrorCode.throttling_quota_exceeded])
async def test_an_error_of_the_brokers_is_returned_from_any_cluster(broker_says: ErrorCode) -> None:
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    deleting, client = asked(registry, "theirs", broker_says)
    await deleting.make(OLD, 1)
    await deleting.topics.load()
    assert await delete_a(deleting, client) == broker_says.value


async def test_a_topic_that_another_proxy_has_just_opened_is_deleted_whole() -> None:
    registry = ModelTopicRegistry()
    deleting, client = asked(registry, "ours")
    await registry.reserve("a", 1, {}, "owner")
    await deleting.topics.load()
    await deleting.make(OLD, 1)
    entry = deleting.topics.find("a")
    assert entry is not None
    assert entry.state == "reserved", "it has not heard of it yet"
    assert (await delete_a(deleting, client), registry.topics.get("a")) == (0, None)


async def test_no_topic_counts_as_gone_while_no_broker_is_known() -> None:
    handler = Deleting(ModelTopicRegistry()).handler
    assert await handler._is_gone(DisklessTopic("a", OLD, 1, "live"), 3) is False


async def test_partitions_that_came_meanwhile_go_too() -> None:
    deleting = Deleting(ModelTopicRegistry())
    await deleting.make(OLD, 1)
    await deleting.topics.load()
    entry = deleting.topics.find("a")
    assert entry is not None
    await deleting.make(OLD, 3)
    assert await deleting.handler._forget(entry) == 0
    assert await deleting.coordinator.describe(OLD, [0, 1, 2]) == [None, None, None]
    assert deleting.topics.all() == ()


@pytest.mark.parametrize("state", ["live", "deleting"])
async def test_an_id_that_brokers_do_not_know_ends_no_log_that_nobody_was_allowed_to_end(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers check no rights before this error, and a missing placeholder topic may come back."""
    registry = ModelTopicRegistry()
    assert await registry.belongs_to("ours")
    deleting, client = asked(registry, "ours", ErrorCode.unknown_topic_id)
    await deleting.make(OLD, 1)
    if state == "deleting":
        await registry.begin_delete("a", OLD)
    await deleting.topics.load()

    async def nowhere(name: str) -> None:
        return None

    monkeypatch.setattr(deleting.reservations, "shadow_anywhere", nowhere)
    assert await delete_a(deleting, client, OLD) == (100 if state == "live" else 0)
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
    deleting, client = asked(registry, "ours", ErrorCode.unknown_topic_or_partition, operations)
    await deleting.make(OLD, 1)
    if state == "deleting":
        await registry.begin_delete("a", OLD)
    await deleting.topics.load()

    async def nowhere(name: str) -> None:
        return None

    monkeypatch.setattr(deleting.reservations, "shadow_anywhere", nowhere)
    assert await delete_a(deleting, client) == error_code
    assert (registry.topics.get("a") is None) == (error_code == 0)
    assert (await deleting.coordinator.describe(OLD, [0]) == [None]) == (error_code == 0)
