"""CreateTopics requests that are forwarded, and the parts of their answers that are read."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.handlers.create_topics import CreateTopics
from proxy.topics.topics import Topics
from proxy.wire.cold import encode, milliseconds
from proxy.wire.metadata import Broker
from tests.registry_model import ModelTopicRegistry
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import settings_of


def result(name: str, error: ErrorCode) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(name), topic_id=uuid.UUID(int=7), error_code=error, error_message=None, configs=None
    )


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
async def test_forwarded_requests_are_checked_for_created_topics(validate_only: bool, enabled: bool) -> None:
    """Older intents of their names have come to nothing."""
    made = list[str]()
    settings = settings_of(enable_under_replicated_topic_creation=enabled)
    registry = Topics(ModelTopicRegistry(), lease_runs=lambda: True)
    cluster: Any = Brokers(dict.fromkeys((1, 2), Broker(1, "broker", 9092, None)))
    unused: Any = None
    under_replicated = UnderReplicatedTopics(settings, unused, cluster, "this proxy", lambda: 7)
    under_replicated.unmade.made_by_others = lambda names, since_ms: made.extend(names)  # type: ignore[method-assign]
    handler = CreateTopics(settings, topics=registry, under_replicated=under_replicated, creator=unused)
    client = ClientDouble()
    topics = tuple(
        CreatableTopic(
            name=TopicName(name), num_partitions=i32(1), replication_factor=i16(2), assignments=(), configs=()
        )
        for name in "ab"
    )
    asked = encode(CreateTopicsRequest(topics=topics, timeout=milliseconds(1), validate_only=validate_only))
    assert await client.answer(handler.create_topics, request_of(19, 7, asked)) is None
    (rewrite,) = client.rewrites
    if not enabled or validate_only:
        assert rewrite is None
        return
    results = (result("a", ErrorCode.none), result("b", ErrorCode.policy_violation))
    body = memoryview(encode(CreateTopicsResponse(throttle_time=milliseconds(0), topics=results)))
    assert rewrite(body) == [body]
    assert rewrite(body[:-1]) == [body[:-1]], "what is not understood is the client's to understand"
    assert made == ["a"]
