"""What becomes of a reservation when the brokers don't say what they made of its shadow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreatableTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from proxy.handlers.create_topics import _Creating
from proxy.wire.cold import milliseconds


class Reservations:
    def __init__(self) -> None:
        self.done: list[str] = []

    async def undo(self, name: str) -> None:
        self.done.append("undone")

    async def settle(self, name: str, wait_s: float) -> None:
        self.done.append("settled")


@pytest.mark.parametrize(
    ("error", "done"),
    [
        (ErrorCode.request_timed_out, "settled"),
        (ErrorCode.unknown_server_error, "settled"),
        (ErrorCode.network_exception, "settled"),
        (ErrorCode.policy_violation, "undone"),
    ],
)
async def test_only_a_shadow_that_was_surely_not_made_is_undone(error: ErrorCode, done: str) -> None:
    reservations = Reservations()
    connection: Any = SimpleNamespace(context=SimpleNamespace(reservations=reservations))
    request: Any = SimpleNamespace(api_key=19, api_version=7)
    asked = CreateTopicsRequest(topics=(), timeout=milliseconds(1), validate_only=False)
    result = CreatableTopicResult(
        name=TopicName("a"), topic_id=None, error_code=error, error_message=None, configs=None
    )
    assert await _Creating(connection, request, asked)._open("a", result) == result
    assert reservations.done == [done]
