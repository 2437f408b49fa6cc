"""The log names streams groups whose internal topics have names that would make them diskless."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy.client.request import Request
from proxy.handlers.group_heartbeat import group_heartbeat
from proxy.telemetry.throttled_log import ThrottledLog
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import encode, request_type

STREAMS = 88


def heartbeat(*repartition_topics: str) -> bytes:
    internal = [{"name": name, "partitions": 0, "replication_factor": 0} for name in repartition_topics]
    topology = {
        "epoch": 1,
        "subtopologies": [{"subtopology_id": "0", "repartition_source_topics": internal}],
    }
    entity = request_type(STREAMS, 0)
    return encode(entity, filled(entity, {"group_id": "app", "topology": topology if repartition_topics else None}))


def sent(body: bytes, *patterns: str) -> tuple[list[Any], list[Request]]:
    """Return the log lines, and the bytes for the broker."""
    forwarded: list[Request] = []
    context = SimpleNamespace(
        racks=SimpleNamespace(learn=lambda *_: None),
        settings=SimpleNamespace(default_diskless_topics=patterns),
        throttled_log=ThrottledLog(lambda: 0.0),
    )
    connection: Any = SimpleNamespace(context=context, session=session(), forward=forwarded.append)
    request = Request(STREAMS, 0, 1, "app", memoryview(body), memoryview(body))
    with structlog.testing.capture_logs() as logged:
        group_heartbeat(connection, request)
    assert forwarded == [request]
    return logged, forwarded


def test_names_that_a_pattern_matches_are_logged() -> None:
    logged, _ = sent(heartbeat("logs.app-a-repartition", "other-repartition"), r"logs\..*")
    (warning,) = logged
    assert warning["event"] == "streams_topics_are_classic"
    assert warning["topics"] == ["logs.app-a-repartition"]


def test_only_some_of_many_names_are_logged() -> None:
    logged, _ = sent(heartbeat(*(f"logs.{number}" for number in range(500))), r"logs\..*")
    assert len(logged[0]["topics"]) == 10


@pytest.mark.parametrize(
    ("body", "patterns"),
    [(heartbeat("other"), (r"logs\..*",)), (heartbeat("logs.a"), ()), (heartbeat(), (".*",)), (b"\x01", (".*",))],
)
def test_else_nothing_is_said(body: bytes, patterns: tuple[str, ...]) -> None:
    assert sent(body, *patterns)[0] == []
