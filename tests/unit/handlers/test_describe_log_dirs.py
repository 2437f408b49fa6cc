"""The broker that reports a diskless partition in its object storage, under each rule of `leader_choice`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.brokers.cluster import ClusterView
from proxy.client.request import Request
from proxy.coordinator.interface import CoordinatorUnavailable, LogDescription
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.describe_log_dirs import describe_log_dirs
from proxy.routing.leaders import LeaderChoice
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import decode, encode, request_type, response_type

KEY = 35
BROKERS = {node: Broker(node, "broker", 9092, "rack-a") for node in (1, 2, 3)}
PARTITIONS = 8
TOPIC = DisklessTopic("diskless", b"t" * 16, PARTITIONS, "live")
STORAGE = "s3://bucket/wal"
CHOICES = ("sticky", "round_robin", "partition_hash", "replica")


class Asked:
    """A client's connection to a broker that has replicas of every placeholder topic, and of a classic topic."""

    def __init__(
        self, node_id: int | None, choice: str = "sticky", *, allowed: bool = True, away: bool = False
    ) -> None:
        self.session = session(node_id=node_id)
        self.filled: list[Any] = []
        self._allowed, self._away = allowed, away
        self.context = SimpleNamespace(
            settings=SimpleNamespace(storage=SimpleNamespace(url=STORAGE)),
            fleet=SimpleNamespace(listener=lambda node, rack, client, came_by: ("proxy", node)),
            cluster=SimpleNamespace(view=ClusterView(BROKERS)),
            racks=SimpleNamespace(of=lambda *_: "rack-a"),
            leader_choice=LeaderChoice(choice),
            topics=SimpleNamespace(all=lambda: (TOPIC,), find=lambda name: TOPIC if name == TOPIC.name else None),
            coordinator=self,
            throttled_log=ThrottledLog(lambda: 0.0),
        )

    def open_slot(self, request: Request) -> Any:
        return SimpleNamespace(fill=self.filled.extend)

    async def ask(self, request: Request, key: int, version: int, body: Any) -> bytes:
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in range(PARTITIONS)]}
            for name in ("classic", TOPIC.name)
        ]
        entity = response_type(KEY, max(version, 1))
        results = [{"log_dir": "/disk", "topics": topics}] if self._allowed else []
        return encode(entity, filled(entity, {"results": results, "error_code": 0 if self._allowed else 31}))

    async def describe(self, topic_id: bytes, partitions: tuple[int, ...]) -> list[LogDescription | None]:
        if self._away:
            raise CoordinatorUnavailable("away")
        return [LogDescription(0, 9, 9, 100 + index, 1) for index in partitions]


async def described(asked: Asked, version: int = 4, topics: list[Any] | None = None) -> dict[str, Any]:
    entity = request_type(KEY, max(version, 1))
    body = memoryview(encode(entity, filled(entity, {"topics": topics})))
    connection: Any = asked
    waiting = describe_log_dirs(connection, Request(KEY, version, 1, "app", body, body))
    assert waiting is not None
    await waiting
    answer: dict[str, Any] = decode(response_type(KEY, max(version, 1)), b"".join(asked.filled))
    return answer


def sizes(answer: dict[str, Any]) -> dict[str, dict[str, dict[int, int]]]:
    return {
        result["log_dir"]: {
            topic["name"]: {one["partition_index"]: one["partition_size"] for one in topic["partitions"]}
            for topic in result["topics"]
        }
        for result in answer["results"]
    }


@pytest.mark.parametrize("choice", CHOICES)
async def test_each_partition_is_at_one_broker(choice: str) -> None:
    found: list[int] = []
    for node in BROKERS:
        described_here = sizes(await described(Asked(node, choice)))
        assert described_here["/disk"].keys() == {"classic"}
        for index, size in described_here.get(STORAGE, {}).get(TOPIC.name, {}).items():
            assert size == 100 + index
            found.append(index)
    assert sorted(found) == list(range(PARTITIONS))


@pytest.mark.parametrize("version", range(6))
async def test_the_bootstrap_port_reports_all_partitions(version: int) -> None:
    answer = await described(Asked(None), version)
    assert sizes(answer)[STORAGE] == {TOPIC.name: {index: 100 + index for index in range(PARTITIONS)}}
    if version >= 4:
        assert answer["results"][-1]["total_bytes"] == answer["results"][-1]["usable_bytes"] == -1


async def test_only_what_is_asked_for() -> None:
    asked = [{"topic": TOPIC.name, "partitions": [3, 3, PARTITIONS, -1]}, {"topic": "classic", "partitions": [0]}]
    assert sizes(await described(Asked(None), topics=asked))[STORAGE] == {TOPIC.name: {3: 103}}


@pytest.mark.parametrize("version", [1, 4])
async def test_a_client_without_the_right_gets_nothing(version: int) -> None:
    answer = await described(Asked(None, allowed=False), version)
    assert answer["results"] == []
    assert answer.get("error_code", 31) == 31


async def test_a_coordinator_that_is_away_is_an_error_of_that_directory() -> None:
    answer = await described(Asked(None, away=True))
    assert {result["log_dir"]: result["error_code"] for result in answer["results"]} == {"/disk": 0, STORAGE: 56}
