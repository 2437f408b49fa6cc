"""Forgetting a diskless topic that has changed since the request for its deletion came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.coordinator.interface import DisklessTopic
from proxy.handlers.delete_topics import _forget, _is_gone
from proxy.reservations import Reservations
from proxy.topics import Topics
from proxy.upstream import BrokerUnreachable
from proxy.wire.metadata import MetadataTopic
from tests.coordinator_model import ModelCoordinator
from tests.registry_model import ModelTopicRegistry

OLD, NEW = b"1" * 16, b"2" * 16


def connection() -> Any:
    registry = ModelTopicRegistry()
    coordinates = SimpleNamespace(forget=lambda topic_id: None)
    context = SimpleNamespace(
        coordinator=ModelCoordinator(),
        topics=Topics(registry, lease_runs=lambda: True),
        reader=SimpleNamespace(coordinates=coordinates),
    )
    context.reservations = Reservations(context)  # type: ignore[arg-type]
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
async def test_what_any_broker_knows_is_not_gone(error_code: int, known_to: tuple[int, ...] | None, gone: bool) -> None:
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
    context.reservations = Asking(context)
    client: Any = SimpleNamespace(context=context)
    assert await _is_gone(client, DisklessTopic("a", OLD, 1, "live"), error_code) is gone
    assert await _is_gone(client, DisklessTopic("a", NEW, 1, "live"), error_code) is (known_to is not None)


async def test_nothing_is_gone_for_whom_no_broker_is_known() -> None:
    context: Any = SimpleNamespace(cluster=SimpleNamespace(view=SimpleNamespace(brokers={})))
    context.reservations = Reservations(context)
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
