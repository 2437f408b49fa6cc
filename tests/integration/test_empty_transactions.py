"""Transactions that have no records, or not even a partition."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, take
from tests.support.records import samples
from tests.support.topics import DISKLESS, new_topic
from tests.support.transactional import (
    RawProducer,
    committed_values,
    send,
    transactional,
    wait_until_stable,
)

INVALID_TXN_STATE = 48
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def diskless(stack: Stack) -> str:
    return new_topic(stack, "empty", DISKLESS)


@pytest.fixture
def near(stack: Stack) -> str:
    """Return the address of a proxy."""
    return stack.bootstrap("rack-b")


def test_empty_transactions_leave_nothing(stack: Stack, near: str, diskless: str) -> None:
    """Some have no partition at all, and others only a group's offset."""
    source, group = new_topic(stack, "empty-source", DISKLESS), f"{diskless}-group"
    produce(near, source, samples(3, "input"))
    producer = transactional(near, diskless)
    for number in range(3):
        for commit in (True, False):
            producer.begin_transaction()
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_SECONDS)
        with consumer(near, group_id=group) as client:
            client.subscribe([source])
            take(client, 1)
            producer.begin_transaction()
            offsets = [TopicPartition(source, 0, number + 1)]
            producer.send_offsets_to_transaction(offsets, client.consumer_group_metadata(), TIMEOUT_SECONDS)
            producer.commit_transaction(TIMEOUT_SECONDS)
            (committed,) = client.committed([TopicPartition(source, 0)], timeout=TIMEOUT_SECONDS)
            assert committed.offset == number + 1
        producer.begin_transaction()
        send(producer, diskless, b"%d" % number)
        producer.commit_transaction(TIMEOUT_SECONDS)
    wait_until_stable(near, diskless, 6)
    assert committed_values(near, diskless, 3) == [b"0", b"1", b"2"]


def test_the_end_of_no_transaction_is_rejected_as_at_brokers(near: str, diskless: str) -> None:
    """The producer's next transaction is not touched."""
    producer = RawProducer(near, diskless)
    assert producer.end(commit=True) == INVALID_TXN_STATE
    assert (producer.add(diskless), producer.produce(diskless, b"kept"), producer.end(commit=True)) == (0, 0, 0)
    assert committed_values(near, diskless, 1) == [b"kept"]
