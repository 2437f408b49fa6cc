"""AlterPartitionReassignments: a plan from the clients' view removes no replica of a placeholder topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.brokers.cluster import ClusterView
from proxy.client.request import Request
from proxy.handlers.alter_partition_reassignments import alter_partition_reassignments
from proxy.protocol.errors import INVALID_REPLICATION_FACTOR, NONE
from proxy.routing.leaders import LeaderChoice
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.sessions import session
from tests.unit.wire.trees import decode, encode, request_type, response_type

METADATA, METADATA_VERSION, REASSIGN = 3, 12, 45
BROKERS = {node: Broker(node, "broker", 9092, rack) for node, rack in {1: "a", 2: "b", 3: "a", 4: "b"}.items()}
SHADOW = [1, 2, 3]


class Asked:
    """A client in one of two racks. The placeholder topic has three replicas, and the broker obeys."""

    def __init__(self, choice: str) -> None:
        self.session = session()
        self.moved: list[tuple[int, int]] = []
        self.answer: dict[str, Any] = {}
        self.context = SimpleNamespace(
            settings=SimpleNamespace(leader_choice=choice),
            fleet=SimpleNamespace(listener=lambda node, rack, client, came_by: ("proxy", node)),
            cluster=SimpleNamespace(view=ClusterView(BROKERS), service=SimpleNamespace(ask=self._metadata)),
            racks=SimpleNamespace(of=lambda *_: "a"),
            leader_choice=LeaderChoice(choice),
            topics=SimpleNamespace(all=lambda: ("t",), find=lambda name: "t"),
        )

    async def _metadata(self, key: int, version: int, body: Any) -> memoryview:
        partitions = [{"partition_index": index, "replica_nodes": SHADOW} for index in range(3)]
        entity = response_type(METADATA, METADATA_VERSION)
        return memoryview(encode(entity, filled(entity, {"topics": [{"name": "t", "partitions": partitions}]})))

    def open_slot(self, request: Request) -> Any:
        def fill(body: list[Any]) -> None:
            self.answer = decode(response_type(REASSIGN, 0), b"".join(map(bytes, body)))

        return SimpleNamespace(fill=fill)

    async def ask(self, request: Request, key: int, version: int, body: bytes) -> memoryview:
        responses = []
        for topic in decode(request_type(key, version), body)["topics"]:
            for one in topic["partitions"]:
                self.moved.append((one["partition_index"], len(one["replicas"])))
                answered = [{"partition_index": one["partition_index"]}]
                responses.append({"name": topic["name"], "partitions": answered})
        entity = response_type(key, version)
        return memoryview(encode(entity, filled(entity, {"responses": responses})))


@pytest.mark.parametrize(("choice", "seen"), [("sticky", 2), ("partition_hash", 2), ("round_robin", 1)])
async def test_a_plan_with_as_many_replicas_as_clients_see_is_rejected(choice: str, seen: int) -> None:
    asked = Asked(choice)
    plans = {0: [2], 1: [2, 3], 2: [2, 3, 4]}
    partitions = [{"partition_index": index, "replicas": plan} for index, plan in plans.items()]
    entity = request_type(REASSIGN, 0)
    body = memoryview(encode(entity, filled(entity, {"topics": [{"name": "t", "partitions": partitions}]})))
    waiting = alter_partition_reassignments(asked, Request(REASSIGN, 0, 1, "app", body, body))  # type: ignore[arg-type]
    assert waiting is not None
    await waiting
    errors = {
        one["partition_index"]: one["error_code"] for topic in asked.answer["responses"] for one in topic["partitions"]
    }
    rejected = seen - 1
    assert errors == {index: INVALID_REPLICATION_FACTOR if index == rejected else NONE for index in plans}
    assert asked.moved == [(index, len(plan)) for index, plan in plans.items() if index != rejected]
    messages = [one["error_message"] for topic in asked.answer["responses"] for one in topic["partitions"]]
    assert any(f"has 3 replicas on the brokers, and clients see {seen}" in (message or "") for message in messages)
