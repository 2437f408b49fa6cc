"""Near replicas that lag: recognized by the ends of their logs, from one check to the next."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from proxy.brokers.states import ClassicTopic
from proxy.brokers.upstream import BrokerUnreachable
from proxy.replicas.log_ends import LogEnds
from proxy.replicas.near import NearBrokers
from proxy.wire.metadata import Broker
from proxy.wire.partition_states import PartitionState
from tests.support.questions import filled
from tests.unit.wire.trees import decode, encode, request_type, response_type

LIST_OFFSETS, UNKNOWN_TOPIC_OR_PARTITION = 2, 3
FAR, ONE, OTHER, THIRD = 9, 1, 2, 3
PARTITION = ("t", 0)


class Brokers:
    """Brokers that answer the ends of their logs, and the topic as clients read it."""

    def __init__(self) -> None:
        self.ends: dict[int, dict[tuple[str, int], int]] = {node: {PARTITION: 0} for node in (ONE, OTHER, THIRD)}
        self.down: set[int] = set()
        self.asked: list[int] = []
        self.open: set[int] = set()
        isr = (FAR, ONE, OTHER, THIRD)
        self.topics = {"t": ClassicTopic("t", b"t" * 16, {0: PartitionState(FAR, 1, isr, isr)})}
        view = {node: Broker(node, "", 0, "far" if node == FAR else "near") for node in isr}
        self.cluster: Any = type("Cluster", (), {"racks_seen": {node: one.rack for node, one in view.items()}})()
        self.cluster.view = type("View", (), {"brokers": view})()
        self.log_ends = LogEnds(
            lambda node: _Connection(self, node),  # type: ignore[arg-type, return-value]
            self.topics.get,
            NearBrokers("near", self.cluster),
            interval_s=0.001,
            max_partitions=2,
        )

    async def look(self, **ends: int) -> frozenset[int]:
        """Check after the ends have changed to these; return the brokers that lag."""
        for name, end in ends.items():
            self.ends[{"one": ONE, "other": OTHER, "third": THIRD}[name]][PARTITION] = end
        await self.log_ends.look()
        return self.log_ends.behind(*PARTITION)


class _Connection:
    def __init__(self, brokers: Brokers, node: int) -> None:
        self._brokers, self._node = brokers, node
        brokers.open.add(node)

    async def ask(self, api_key: int, version: int, body: bytes) -> memoryview:
        assert api_key == LIST_OFFSETS
        self._brokers.asked.append(self._node)
        if self._node in self._brokers.down:
            raise BrokerUnreachable("down")
        asked = decode(request_type(api_key, version), body)
        assert asked["replica_id"] == -2, "a follower answers nobody else"
        topics = [
            {"name": topic["name"], "partitions": [self._answer(topic["name"], one) for one in topic["partitions"]]}
            for topic in asked["topics"]
        ]
        entity = response_type(api_key, version)
        return memoryview(encode(entity, filled(entity, {"topics": topics})))

    def _answer(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        index = asked["partition_index"]
        end = self._brokers.ends[self._node].get((name, index))
        error_code = UNKNOWN_TOPIC_OR_PARTITION if end is None else 0
        return {
            "partition_index": index,
            "error_code": error_code,
            "timestamp": -1,
            "offset": -1 if end is None else end,
        }

    def close(self) -> None:
        self._brokers.open.discard(self._node)


@pytest.fixture
def brokers() -> Brokers:
    brokers = Brokers()
    brokers.log_ends.watch(*PARTITION)
    return brokers


async def test_a_stalled_replica_lags_until_it_has_caught_up(brokers: Brokers) -> None:
    assert await brokers.look(one=10, other=10, third=10) == set()
    assert await brokers.look(one=20, other=19, third=10) == set()
    assert await brokers.look(one=30, other=29, third=10) == {THIRD}
    version = brokers.log_ends.version
    assert await brokers.look(one=40, other=39, third=15) == {THIRD}
    assert brokers.log_ends.version == version
    assert await brokers.look(one=40, other=40, third=40) == set()
    assert brokers.log_ends.version > version


async def test_replicas_that_grow_together_are_equal_in_any_order_of_requests(brokers: Brokers) -> None:
    for end in range(0, 1_000, 100):
        assert await brokers.look(one=end, other=end + 60, third=end + 99) == set()


async def test_a_log_that_becomes_shorter_is_compared_with_the_others_as_they_are(brokers: Brokers) -> None:
    assert await brokers.look(one=100, other=100, third=100) == set()
    assert await brokers.look(one=5, other=5, third=3) == {THIRD}
    assert await brokers.look(one=5, other=5, third=5) == set()


async def test_a_broker_that_does_not_answer_keeps_its_state(brokers: Brokers) -> None:
    await brokers.look(one=10, other=10, third=10)
    await brokers.look(one=20, other=20, third=5)
    brokers.down |= {THIRD, OTHER}
    with structlog.testing.capture_logs() as logged:
        assert await brokers.look(one=30) == {THIRD}
        assert await brokers.look(one=40) == {THIRD}
    assert sorted((line["event"], line["broker"]) for line in logged) == [
        ("log_ends_unknown", OTHER),
        ("log_ends_unknown", THIRD),
    ]
    brokers.down.clear()
    assert await brokers.look(other=41, third=41) == set()


async def test_a_replica_that_answers_an_error_is_not_compared(brokers: Brokers) -> None:
    await brokers.look(one=10, other=10)
    del brokers.ends[THIRD][PARTITION]
    assert await brokers.look(one=20, other=20) == set()
    assert await brokers.look(one=30, other=20) == set()


async def test_a_partition_is_dropped_after_its_replicas_are_not_equal(brokers: Brokers) -> None:
    await brokers.look(one=10, other=10, third=10)
    assert await brokers.look(one=10, other=10, third=4) == {THIRD}
    version, replicas = brokers.log_ends.version, (FAR, ONE, OTHER, THIRD)
    brokers.topics["t"] = ClassicTopic("t", b"t" * 16, {0: PartitionState(ONE, 2, replicas, replicas)})
    brokers.asked.clear()
    assert await brokers.look() == set()
    assert brokers.log_ends.version > version
    assert (brokers.asked, brokers.open, len(brokers.log_ends)) == ([], set(), 0)


async def test_a_topic_that_nobody_reads_is_forgotten(brokers: Brokers) -> None:
    await brokers.look()
    assert len(brokers.log_ends) == 1
    brokers.topics.clear()
    await brokers.look()
    assert len(brokers.log_ends) == 0


def test_partitions_beyond_the_limit_are_not_watched(brokers: Brokers) -> None:
    for partition in range(5):
        brokers.log_ends.watch("t", partition)
    assert len(brokers.log_ends) == 2
