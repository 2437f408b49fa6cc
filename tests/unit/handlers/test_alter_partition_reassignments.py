"""AlterPartitionReassignments: a plan from the clients' view removes no replica of a placeholder topic."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.handlers.alter_partition_reassignments import AlterPartitionReassignments
from proxy.protocol.errors import INVALID_REPLICATION_FACTOR, NONE
from proxy.wire.metadata import Broker
from tests.support.questions import filled
from tests.unit.brokers_double import Brokers
from tests.unit.client_double import ClientDouble, request_of
from tests.unit.parts import parts_of, settings_of
from tests.unit.wire.trees import decode, encode, request_type, response_type

METADATA, METADATA_VERSION, REASSIGN = 3, 12, 45
BROKERS = {node: Broker(node, "broker", 9092, rack) for node, rack in {1: "a", 2: "b", 3: "a", 4: "b"}.items()}
SHADOW = [1, 2, 3]


class Asked:
    """A client in one of two racks. The placeholder topic has three replicas, and the broker obeys."""

    def __init__(self, choice: str) -> None:
        self.moved: list[tuple[int, int]] = []
        self.client = ClientDouble(self._reassign)
        parts = parts_of(settings_of(rack="a", leader_choice=choice), DisklessTopic("t", b"t" * 16, 3, "live"))
        cluster: Any = Brokers(BROKERS, {METADATA: self._metadata})
        addresses: Any = parts.routing.addresses
        addresses._cluster = cluster
        self.handler = AlterPartitionReassignments(
            parts.process.settings, topics=parts.topics.topics, cluster=cluster, addresses=addresses
        )

    def _metadata(self, version: int, body: bytes) -> bytes:
        partitions = [{"partition_index": index, "replica_nodes": SHADOW} for index in range(3)]
        entity = response_type(METADATA, METADATA_VERSION)
        return encode(entity, filled(entity, {"topics": [{"name": "t", "partitions": partitions}]}))

    def _reassign(self, key: int, version: int, body: bytes) -> bytes:
        responses = []
        for topic in decode(request_type(key, version), body)["topics"]:
            for one in topic["partitions"]:
                self.moved.append((one["partition_index"], len(one["replicas"])))
                answered = [{"partition_index": one["partition_index"]}]
                responses.append({"name": topic["name"], "partitions": answered})
        entity = response_type(key, version)
        return encode(entity, filled(entity, {"responses": responses}))


@pytest.mark.parametrize(("choice", "seen"), [("sticky", 2), ("partition_hash", 2), ("round_robin", 1)])
async def test_a_plan_with_as_many_replicas_as_clients_see_is_rejected(choice: str, seen: int) -> None:
    asked = Asked(choice)
    plans = {0: [2], 1: [2, 3], 2: [2, 3, 4]}
    partitions = [{"partition_index": index, "replicas": plan} for index, plan in plans.items()]
    entity = request_type(REASSIGN, 0)
    body = encode(entity, filled(entity, {"topics": [{"name": "t", "partitions": partitions}]}))
    handle = asked.handler.alter_partition_reassignments
    answer = decode(response_type(REASSIGN, 0), await asked.client.answer(handle, request_of(REASSIGN, 0, body)) or b"")
    errors = {one["partition_index"]: one["error_code"] for topic in answer["responses"] for one in topic["partitions"]}
    rejected = seen - 1
    assert errors == {index: INVALID_REPLICATION_FACTOR if index == rejected else NONE for index in plans}
    assert asked.moved == [(index, len(plan)) for index, plan in plans.items() if index != rejected]
    messages = [one["error_message"] for topic in answer["responses"] for one in topic["partitions"]]
    assert any(f"has 3 replicas on the brokers, and clients see {seen}" in (message or "") for message in messages)
