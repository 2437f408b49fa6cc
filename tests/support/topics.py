"""Create and delete the tests' own topics through the proxies."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack

CLASSIC, DISKLESS = "classic", "diskless"
KINDS = (CLASSIC, DISKLESS)
REPLICAS = 3
NOT_HEARD_OF = {
    KafkaError._NOENT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""Errors that clients report for a topic that their broker does not know yet: brokers learn of it one after the
other."""


def admin(stack: Stack, rack: str = "rack-a") -> AdminClient:
    """Return an Admin client of the rack."""
    return AdminClient({"bootstrap.servers": stack.bootstrap(rack), **tls_settings(stack)})


def tls_settings(stack: Stack) -> dict[str, Any]:
    """Return the settings of librdkafka for a stack with TLS and without users."""
    return stack.security.client_settings(ADMIN) if stack.security.kind == "ssl" else {}


def new_topic(
    stack: Stack, label: str, kind: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic with a unique name and return the name."""
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
    """Create a topic through the rack's proxy; `assignment` lists the replicas of each partition, the leader first."""
    enabled = {"diskless.enable": "true"} if kind == DISKLESS else {}
    replicas = {"replica_assignment": assignment} if assignment else {"replication_factor": replica_count(stack)}
    topic = NewTopic(name, len(assignment or ()) or partitions, config={**(configs or {}), **enabled}, **replicas)
    client = admin(stack, rack)  # the client must live until the result is there
    client.create_topics([topic], request_timeout=30)[name].result(40)


def replica_count(stack: Stack) -> int:
    """Return the largest possible number of replicas in the stack, three at most."""
    return min(REPLICAS, len(stack.kafka.brokers))


def delete_topic(stack: Stack, name: str, rack: str = "rack-a") -> None:
    """Delete a topic through the rack's proxy."""
    client = admin(stack, rack)
    client.delete_topics([name], request_timeout=30)[name].result(40)


def offsets(stack: Stack, name: str, partition: int = 0, rack: str = "rack-a") -> tuple[int, int]:
    """Return the earliest and the latest offset, once all brokers know the topic."""
    asked = TopicPartition(name, partition)
    client = admin(stack, rack)
    deadline = time.monotonic() + 30
    while True:
        found = [client.list_offsets({asked: spec}) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
        try:
            earliest, latest = (answer[asked].result(30).offset for answer in found)
        except KafkaException as error:
            if error.args[0].code() not in NOT_HEARD_OF or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return earliest, latest
