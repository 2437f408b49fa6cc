"""CreatePartitions of a topic that another proxy deletes at the same time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from proxy.client.request import Request
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_registry import DisklessTopic, TopicNotReserved
from proxy.creation.replication.growth import PartitionGrowth
from proxy.handlers.create_partitions import CreatePartitions
from proxy.wire.cold import encode, milliseconds, read_response

NAMES = ("gone", "there")


@pytest.mark.parametrize(
    ("failure", "error_code"), [(TopicNotReserved("gone"), 3), (CoordinatorUnavailable("away"), 7)]
)
async def test_a_topic_that_cannot_grow_fails_alone(failure: Exception, error_code: int) -> None:
    answer_parts: list[bytes] = []
    grown: list[str] = []

    async def ask(*_: object) -> memoryview:
        results = tuple(
            CreatePartitionsTopicResult(name=TopicName(name), error_code=ErrorCode.none, error_message=None)
            for name in NAMES
        )
        return memoryview(encode(CreatePartitionsResponse(throttle_time=milliseconds(0), results=results)))

    async def grow(name: str, topic_id: bytes, partitions: int) -> None:
        if name == "gone":
            raise failure
        grown.append(name)

    known = {name: DisklessTopic(name, b"t" * 16, 1, "live" if name == "gone" else "reserved") for name in NAMES}

    async def look_again() -> None:
        known["there"] = replace(known["there"], state="live")

    topics: Any = SimpleNamespace(all=lambda: NAMES, find=known.get, look_again=look_again)
    under_replicated: Any = SimpleNamespace(enabled=False)
    unused: Any = None
    reservations: Any = SimpleNamespace(open=grow, leave=lambda name: None)
    growth = PartitionGrowth(under_replicated, unused, unused, topics)
    handler = CreatePartitions(topics=topics, reservations=reservations, growth=growth)
    client: Any = SimpleNamespace(ask=ask, open_slot=lambda request: SimpleNamespace(fill=answer_parts.extend))
    asked = CreatePartitionsRequest(
        topics=tuple(CreatePartitionsTopic(name=TopicName(name), count=i32(2), assignments=None) for name in NAMES),
        timeout=milliseconds(1),
        validate_only=False,
    )
    body = memoryview(encode(asked))
    growing = handler.create_partitions(client, Request(37, 3, 1, "a", body, body))
    assert growing is not None
    await growing
    response: Any = read_response(37, 3, memoryview(b"".join(answer_parts)))
    assert [(str(one.name), one.error_code.value) for one in response.results] == [("gone", error_code), ("there", 0)]
    assert grown == ["there"]
