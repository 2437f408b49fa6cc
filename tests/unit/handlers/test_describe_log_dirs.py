"""The broker that reports a diskless partition in its object storage, under each rule of `leader_choice`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.coordinator.interface import CoordinatorUnavailable, LogDescription
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.describe_log_dirs import DescribeLogDirs
from proxy.process.turns import Turns
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import parts_of, settings_of
from tests.unit.sessions import session
from tests.unit.wire.trees import decode, encode, request_type, response_type

KEY = 35
BROKERS = {node: Broker(node, "broker", 9092, "rack-a") for node in (1, 2, 3)}
PARTITIONS = 8
TOPIC = DisklessTopic("diskless", b"t" * 16, PARTITIONS, "live")
STORAGE = "s3://bucket/wal"
CHOICES = ("sticky", "round_robin", "partition_hash", "replica")


class Asked(ClientDouble):
    """A client of a broker that has replicas of every placeholder topic, and of a classic topic."""

    def __init__(
        self, node_id: int | None, choice: str = "sticky", *, allowed: bool = True, away: bool = False
    ) -> None:
        super().__init__(self._describe_classic, of=session(node_id=node_id))
        self._allowed, self._away = allowed, away
        settings = settings_of(storage={"url": STORAGE}, leader_choice=choice)
        brokers: Any = Brokers(BROKERS)
        parts = parts_of(settings_of(leader_choice=choice), TOPIC)
        addresses: Any = parts.routing.addresses
        addresses._cluster = brokers
        coordinator: Any = self
        self.handler = DescribeLogDirs(
            settings.storage,
            topics=parts.topics.topics,
            addresses=addresses,
            coordinator=coordinator,
            turns=Turns(0.0),
            throttled_log=ThrottledLog(lambda: 0.0),
        )

    def _describe_classic(self, key: int, version: int, body: bytes) -> bytes:
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in range(PARTITIONS)]}
            for name in ("classic", TOPIC.name)
        ]
        entity = response_type(KEY, max(version, 1))
        results = [{"log_dir": "/disk", "topics": topics}] if self._allowed else []
        return encode(entity, filled(entity, {"results": results, "error_code": 0 if self._allowed else 31}))

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        """Answer for the coordinator."""
        if self._away:
            raise CoordinatorUnavailable("away")
        return [LogDescription(0, 9, 100 + index, 1, 9) for index in partitions]


async def described(asked: Asked, version: int = 4, topics: list[Any] | None = None) -> dict[str, Any]:
    entity = request_type(KEY, max(version, 1))
    body = encode(entity, filled(entity, {"topics": topics}))
    answered = await asked.answer(asked.handler.describe_log_dirs, request_of(KEY, version, body))
    assert answered is not None
    answer: dict[str, Any] = decode(response_type(KEY, max(version, 1)), answered)
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
