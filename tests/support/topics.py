"""Topics of the tests' own, made and ended through the proxies."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from proxy.demo.stack import Stack

CLASSIC, DISKLESS = "classic", "diskless"
KINDS = (CLASSIC, DISKLESS)
REPLICAS = 3


def admin(stack: Stack, rack: str = "rack-a") -> AdminClient:
    """An Admin client of the rack."""
    return AdminClient({"bootstrap.servers": stack.bootstrap(rack)})


def new_topic(
    stack: Stack, label: str, kind: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic with a name that nobody else has; its name."""
    name = f"{label}-{kind}-{uuid.uuid4().hex[:6]}"
    create_topic(stack, name, kind, partitions, configs=configs)
    return name


def create_topic(
    stack: Stack,
    name: str,
    kind: str,
    partitions: int = 1,
    *,
    rack: str = "rack-a",
    configs: Mapping[str, str] | None = None,
    assignment: list[list[int]] | None = None,
) -> None:
    """Create a topic through the rack's proxy; `assignment`: the replicas of each partition, the leader first."""
    enabled = {"diskless.enable": "true"} if kind == DISKLESS else {}
    replicas = {"replica_assignment": assignment} if assignment else {"replication_factor": replica_count(stack)}
    topic = NewTopic(name, len(assignment or ()) or partitions, config={**(configs or {}), **enabled}, **replicas)
    client = admin(stack, rack)  # it has to live until the result is there
    client.create_topics([topic], request_timeout=30)[name].result(40)


def replica_count(stack: Stack) -> int:
    """As many replicas as a topic of the stack can have, three at most."""
    return min(REPLICAS, len(stack.kafka.brokers))


def delete_topic(stack: Stack, name: str, rack: str = "rack-a") -> None:
    """Delete a topic through the rack's proxy."""
    client = admin(stack, rack)
    client.delete_topics([name], request_timeout=30)[name].result(40)


def offsets(stack: Stack, name: str, partition: int = 0, rack: str = "rack-a") -> tuple[int, int]:
    """Earliest and latest offset."""
    asked = TopicPartition(name, partition)
    client = admin(stack, rack)
    found = [client.list_offsets({asked: spec}) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    earliest, latest = (answer[asked].result(30).offset for answer in found)
    return earliest, latest
