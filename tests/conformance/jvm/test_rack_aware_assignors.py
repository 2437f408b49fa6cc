"""Kafka's rack-aware assignors (KIP-881) spread a diskless topic evenly, whatever rack the group's leader is in.

The leader of a group assigns with the Metadata that it got itself. The classic topic has one replica per partition;
otherwise the assignors would ignore racks.
"""

from __future__ import annotations

from collections import Counter

import pytest

from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools
from tests.support.questions import ask
from tests.support.topics import CLASSIC, DISKLESS, create_topic, new_topic
from tests.support.waiting import wait_for

METADATA, VERSION = 3, 12
CONSUMER = "org.apache.kafka.clients.consumer"
PARTITIONS = 12
ASSIGNORS = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> tuple[str, str]:
    diskless = new_topic(running_stack, "assigned", DISKLESS, PARTITIONS)
    classic = diskless.replace(DISKLESS, CLASSIC)
    create_topic(running_stack, classic, CLASSIC, assignment=[[node] for node in running_stack.kafka.racks])
    return classic, diskless


def described(stack: Stack, rack: str, topics: tuple[str, str]) -> tuple[str, str]:
    """Return brokers and partitions as a client of the rack gets them, for `Assign.java`."""
    metadata = ask(
        stack.bootstrap(rack), METADATA, VERSION, topics=[{"name": name, "topic_id": bytes(16)} for name in topics]
    )
    partitions = [
        f"{topic['name']}:{one['partition_index']}:{'/'.join(map(str, one['replica_nodes']))}"
        for topic in metadata["topics"]
        for one in topic["partitions"]
        if not one["error_code"]
    ]
    return ",".join(f"{one['node_id']}={one['rack']}" for one in metadata["brokers"]), ",".join(partitions)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_diskless_topic_is_spread_evenly_over_racks(
    stack: Stack, tools: JavaTools, topics: tuple[str, str], assignor: str
) -> None:
    """Each rack has two members. The first one, by name, subscribes to the diskless topic only."""
    _, diskless = topics
    racks = tuple(stack.proxies)
    members = {f"{number}-{rack}": rack for rack in racks for number in (0, 1)}
    subscriptions = (diskless, "+".join(topics))
    group = ",".join(f"{member}={rack}={subscriptions[int(member[0])]}" for member, rack in members.items())
    for leaders_rack in racks:
        wait_for(
            lambda: described(stack, leaders_rack, topics)[1].count(":") == 2 * (PARTITIONS + len(racks)),  # noqa: B023
            "all partitions are described",
        )
        brokers, partitions = described(stack, leaders_rack, topics)
        printed = tools.check("Assign", f"{CONSUMER}.{assignor}", brokers, group, partitions)
        assigned = [line.split() for line in printed.splitlines()]
        assert len(assigned) == PARTITIONS + len(racks)
        spread = Counter(members[member] for member, topic, _ in assigned if topic == diskless)
        assert spread == dict.fromkeys(racks, PARTITIONS // len(racks)), f"the leader is in {leaders_rack}"


def test_replicas_and_isr_have_a_broker_of_each_rack_the_leader_first(stack: Stack, topics: tuple[str, str]) -> None:
    _, diskless = topics
    for node, rack in stack.kafka.racks.items():
        (topic,) = ask(stack.bootstrap(rack), METADATA, VERSION, topics=[{"name": diskless, "topic_id": bytes(16)}])[
            "topics"
        ]
        for one in topic["partitions"]:
            assert one["leader_id"] == one["replica_nodes"][0] == node
            assert one["replica_nodes"] == one["isr_nodes"]
            assert sorted(one["replica_nodes"]) == sorted(stack.kafka.racks)
