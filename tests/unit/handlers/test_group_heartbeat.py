"""The log names streams groups whose internal topics have names that would make them diskless."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from proxy.client.rights import ClientRights
from proxy.handlers.group_heartbeat import GroupHeartbeat
from proxy.telemetry.throttled_log import ThrottledLog
from tests.support.questions import filled
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import parts_of, settings_of
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


async def sent(body: bytes, *patterns: str) -> list[Any]:
    """Return the log lines."""
    client = ClientDouble()
    parts = parts_of(settings_of(default_diskless_topics=patterns))
    handler = GroupHeartbeat(
        parts.process.settings,
        racks=parts.routing.racks,
        topics=parts.topics.topics,
        rights=ClientRights(parts.process.settings, lambda: 0.0),
        throttled_log=ThrottledLog(lambda: 0.0),
    )
    request = request_of(STREAMS, 0, body)
    with structlog.testing.capture_logs() as logged:
        assert await client.answer(handler.heartbeat, request) is None
    assert client.forwarded == [request]
    return logged


async def test_names_that_a_pattern_matches_are_logged() -> None:
    logged = await sent(heartbeat("logs.app-a-repartition", "other-repartition"), r"logs\..*")
    (warning,) = logged
    assert warning["event"] == "streams_topics_are_classic"
    assert warning["topics"] == ["logs.app-a-repartition"]


async def test_only_some_of_many_names_are_logged() -> None:
    logged = await sent(heartbeat(*(f"logs.{number}" for number in range(500))), r"logs\..*")
    assert len(logged[0]["topics"]) == 10


@pytest.mark.parametrize(
    ("body", "patterns"),
    [(heartbeat("other"), (r"logs\..*",)), (heartbeat("logs.a"), ()), (heartbeat(), (".*",)), (b"\x01", (".*",))],
)
async def test_else_nothing_is_said(body: bytes, patterns: tuple[str, ...]) -> None:
    assert await sent(body, *patterns) == []
