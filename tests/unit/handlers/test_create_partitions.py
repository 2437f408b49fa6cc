"""CreatePartitions of a topic that another proxy deletes at the same time."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import TopicNotReserved
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.creation.replication.growth import PartitionGrowth
from proxy.creation.reservations import Reservations
from proxy.handlers.create_partitions import CreatePartitions
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds, read_response
from tests.registry_model import ModelTopicRegistry
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.creation.made import reservations_of
from tests.unit.parts import settings_of

NAMES = ("gone", "there")


class Growing(Reservations):
    """Notes which topics grow; `gone` does not."""

    failure: Exception

    @cached_property
    def grown(self) -> list[str]:
        return []

    async def open(self, name: str, topic_id: bytes, partitions: int) -> None:
        if name == "gone":
            raise self.failure
        self.grown.append(name)

    def leave(self, name: str, *, never_made: bool = False) -> None:
        assert name == "gone"


@pytest.mark.parametrize(
    ("failure", "error_code"), [(TopicNotReserved("gone"), 3), (CoordinatorUnavailable("away"), 7)]
)
async def test_a_topic_that_cannot_grow_fails_alone(failure: Exception, error_code: int) -> None:
    registry = ModelTopicRegistry()
    for name in NAMES:
        await registry.reserve(name, 1, {}, "owner")
    await registry.activate("gone", b"t" * 16, 1)
    topics = Topics(registry, lease_runs=lambda: True)
    await topics.load()
    await registry.activate("there", b"u" * 16, 1)  # this proxy has not heard of it yet
    unused: Any = None
    under_replicated = UnderReplicatedTopics(
        settings_of(enable_under_replicated_topic_creation=False), unused, unused, "this proxy", lambda: 7
    )
    growing = reservations_of(Growing, registry)
    growing.failure = failure
    growth = PartitionGrowth(under_replicated, unused, unused, topics)
    handler = CreatePartitions(topics=topics, reservations=growing, growth=growth)
    results = tuple(
        CreatePartitionsTopicResult(name=TopicName(name), error_code=ErrorCode.none, error_message=None)
        for name in NAMES
    )
    client = ClientDouble(lambda *_: CreatePartitionsResponse(throttle_time=milliseconds(0), results=results))
    asked = CreatePartitionsRequest(
        topics=tuple(CreatePartitionsTopic(name=TopicName(name), count=i32(2), assignments=None) for name in NAMES),
        timeout=milliseconds(1),
        validate_only=False,
    )
    answer = await client.answer(handler.create_partitions, request_of(37, 3, encode(asked)))
    assert answer is not None
    response: Any = read_response(37, 3, memoryview(answer))
    assert [(str(one.name), one.error_code.value) for one in response.results] == [("gone", error_code), ("there", 0)]
    assert growing.grown == ["there"]
