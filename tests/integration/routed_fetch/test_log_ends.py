"""Every replica reports its own log end if the request is not a consumer's, so the proxy can compare the replicas."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.integration.routed_fetch.conftest import END, PLAIN, REPLICAS, Logs
from tests.support.questions import ask
from tests.support.routed import LEADER, broker_address

LIST_OFFSETS, VERSION = 2, 5
CONSUMER, ANY_REPLICA = -1, -2
LATEST = -1
NONE, NOT_LEADER_OR_FOLLOWER = 0, 6


def latest(stack: Stack, node: int, topic: str, replica_id: int) -> tuple[int, int]:
    """Return the error code and the latest offset."""
    partition = {"partition_index": PLAIN, "current_leader_epoch": -1, "timestamp": LATEST}
    asked: dict[str, Any] = {"replica_id": replica_id, "topics": [{"name": topic, "partitions": [partition]}]}
    latest_offset = ask(broker_address(stack, node), LIST_OFFSETS, VERSION, **asked)["topics"][0]["partitions"][0]
    return latest_offset["error_code"], latest_offset["offset"]


@pytest.mark.parametrize("node", REPLICAS)
def test_a_replica_reports_the_end_of_its_own_log(stack: Stack, logs: Logs, node: int) -> None:
    assert latest(stack, node, logs.topic, ANY_REPLICA) == (NONE, END)
    of_consumer = (NONE, END) if node == LEADER else (NOT_LEADER_OR_FOLLOWER, -1)
    assert latest(stack, node, logs.topic, CONSUMER) == of_consumer
