"""Kafka's own system tests of producing and consuming, by name, on a classic and on a diskless topic, as KIP-1163 asks.

They follow `kafkatest.tests.core.produce_bench_test` and `consume_bench_test`. Two are left out:
`test_produce_bench_transactions` (test_transactions.py has transactions), and `…_should_raise`, which tests the
framework's own agent.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce_to, take
from tests.support.records import samples
from tests.support.topics import KINDS, new_topic, offsets

PARTITIONS = 2
PER_PARTITION = 200
RACKS = ("rack-a", "rack-b", "rack-c")

pytestmark = pytest.mark.parametrize("kind", KINDS)
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def filled(stack: Stack, kind: str, topics: int) -> list[str]:
    """Create topics with the same number of records in each partition."""
    names = [new_topic(stack, "consume-bench", kind, PARTITIONS) for _ in range(topics)]
    for rack, name in zip(RACKS, names, strict=False):
        fill(stack, name, rack)
    return names


def fill(stack: Stack, topic: str, rack: str) -> None:
    sent = {partition: samples(PER_PARTITION, f"{topic}-{partition}", 200) for partition in range(PARTITIONS)}
    produce_to(stack.bootstrap(rack), topic, sent, enable_idempotence=True)


def every_place(topics: Sequence[str]) -> list[Place]:
    return sorted((topic, part, at) for topic in topics for part in range(PARTITIONS) for at in range(PER_PARTITION))


def places(messages: Sequence[Message]) -> list[Place]:
    return sorted((message.topic(), message.partition(), message.offset()) for message in messages)


def assigned(client: Consumer, topics: Sequence[str]) -> Consumer:
    client.assign([TopicPartition(topic, partition, 0) for topic in topics for partition in range(PARTITIONS)])
    return client


def subscribed(client: Consumer, topics: Sequence[str]) -> Consumer:
    client.subscribe(list(topics))
    return client


def test_produce_bench(stack: Stack, kind: str) -> None:
    active, inactive = ([new_topic(stack, f"produce-bench-{use}", kind, PARTITIONS) for _ in range(2)] for use in "ab")
    for rack, topic in zip(RACKS, active, strict=False):
        fill(stack, topic, rack)
    for topics, end in ((active, PER_PARTITION), (inactive, 0)):
        for topic in topics:
            assert [offsets(stack, topic, partition) for partition in range(PARTITIONS)] == [(0, end)] * PARTITIONS


@pytest.mark.parametrize("by", ["subscription", "assignment"])
def test_consume_bench(stack: Stack, kind: str, by: str) -> None:
    topics = filled(stack, kind, 2)
    with consumer(stack.bootstrap("rack-c"), group_id=f"bench-{uuid.uuid4()}") as client:
        (subscribed if by == "subscription" else assigned)(client, topics)
        assert places(take(client, len(topics) * PARTITIONS * PER_PARTITION)) == every_place(topics)


def test_single_partition(stack: Stack, kind: str) -> None:
    (topic,) = filled(stack, kind, 1)
    with consumer(stack.bootstrap("rack-b")) as client:
        client.assign([TopicPartition(topic, 1, 0)])
        found = places(take(client, PER_PARTITION))
    assert found == [place for place in every_place([topic]) if place[1] == 1]


def test_multiple_consumers_random_group_topics(stack: Stack, kind: str) -> None:
    topics = filled(stack, kind, 2)
    with ExitStack() as opened:
        clients = [
            subscribed(opened.enter_context(consumer(stack.bootstrap(rack), group_id=f"random-{uuid.uuid4()}")), topics)
            for rack in RACKS
        ]
        for client in clients:
            assert places(take(client, len(topics) * PARTITIONS * PER_PARTITION)) == every_place(topics)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_consumers_specified_group_topics(stack: Stack, kind: str, protocol: str) -> None:
    topics = filled(stack, kind, 1)
    group = f"specified-{uuid.uuid4()}"
    wanted = len(every_place(topics))
    found: list[Message] = []
    with ExitStack() as opened:
        clients = [
            subscribed(
                opened.enter_context(
                    consumer(stack.bootstrap(rack), group_id=group, group_protocol=protocol, enable_auto_commit=True)
                ),
                topics,
            )
            for rack in RACKS[:2]
        ]
        deadline = time.monotonic() + 60
        # A record may come twice if a partition moves to the second member before its offset is committed.
        while len(set(places(found))) < wanted or not all(client.assignment() for client in clients):
            assert time.monotonic() < deadline, f"only {len(found)} of {wanted} records came"
            for client in clients:
                found += [message for message in client.consume(500, 0.2) if message.error() is None]
        shares = [{one.partition for one in client.assignment()} for client in clients]
    assert sorted(set(places(found))) == every_place(topics)
    assert shares[0] | shares[1] == set(range(PARTITIONS))
    assert not shares[0] & shares[1]


def test_multiple_consumers_random_group_partitions(stack: Stack, kind: str) -> None:
    topics = filled(stack, kind, 2)
    with ExitStack() as opened:
        for rack in RACKS:
            client = opened.enter_context(consumer(stack.bootstrap(rack), group_id=f"random-{uuid.uuid4()}"))
            assigned(client, topics)
            assert places(take(client, len(topics) * PARTITIONS * PER_PARTITION)) == every_place(topics)
