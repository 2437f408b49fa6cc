"""CreateTopics requests that are forwarded, and the parts of their answers that are read."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from proxy.client.request import Request
from proxy.creation.replication.creation import UnderReplicatedTopics
from proxy.handlers.create_topics import CreateTopics
from proxy.wire.cold import encode, milliseconds


def result(name: str, error: ErrorCode) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(name), topic_id=uuid.UUID(int=7), error_code=error, error_message=None, configs=None
    )


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_forwarded_requests_are_checked_for_created_topics(validate_only: bool, enabled: bool) -> None:
    """Older intents of their names have come to nothing."""
    made, rewrites = list[str](), list[Any]()
    settings: Any = SimpleNamespace(enable_under_replicated_topic_creation=enabled, default_diskless_topics=())
    registry: Any = SimpleNamespace(find=lambda name: None)
    cluster: Any = SimpleNamespace(view=SimpleNamespace(brokers={1: None, 2: None}))
    unused: Any = None
    under_replicated = UnderReplicatedTopics(settings, unused, cluster, "this proxy", lambda: 7)
    under_replicated.unmade.made_by_others = lambda names, since_ms: made.extend(names)  # type: ignore[method-assign]
    handler = CreateTopics(settings, topics=registry, under_replicated=under_replicated, creator=unused)
    client: Any = SimpleNamespace(forward=lambda request, rewrite=None: rewrites.append(rewrite))
    topics = tuple(
        CreatableTopic(
            name=TopicName(name), num_partitions=i32(1), replication_factor=i16(2), assignments=(), configs=()
        )
        for name in "ab"
    )
    asked = encode(CreateTopicsRequest(topics=topics, timeout=milliseconds(1), validate_only=validate_only))
    assert handler.create_topics(client, Request(19, 7, 1, "a", memoryview(asked), memoryview(asked))) is None
    (rewrite,) = rewrites
    if not enabled or validate_only:
        assert rewrite is None
        return
    results = (result("a", ErrorCode.none), result("b", ErrorCode.policy_violation))
    body = memoryview(encode(CreateTopicsResponse(throttle_time=milliseconds(0), topics=results)))
    assert rewrite(body) == [body]
    assert rewrite(body[:-1]) == [body[:-1]], "what is not understood is the client's to understand"
    assert made == ["a"]
