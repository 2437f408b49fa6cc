"""The last epochs of a producer ID. Sessions would take minutes to use up 32,766 epochs, so the brokers' state of the
transactional ID is overwritten, and another transaction coordinator loads it."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, take
from tests.support.questions import ask
from tests.support.topics import DISKLESS, new_topic
from tests.support.transactional import READ_UNCOMMITTED, RawProducer, end_offset, read_to_end, wait_until_stable

NONE, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 0, 47, 49, 90
FIND_COORDINATOR, TRANSACTION = 10, 1
LAST_EPOCH, FENCED = 32_766, (INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED)
STATES, PARTITIONS = "__transaction_state", 3
EMPTY = 0
VALUE = struct.Struct(">hqhibiqq")
"""Version, producer ID, epoch, timeout, state, number of partitions, and two timestamps (`TransactionLogValue`)."""


@pytest.fixture
def restored(stack: Stack) -> Iterator[Stack]:
    """Start all brokers again after the test."""
    yield stack
    stack.heal()


def java_hash(text: str) -> int:
    """Return `Utils.abs` of `String.hashCode`."""
    found = 0
    for character in text:
        found = (31 * found + ord(character)) % 2**32
    found = found if found < 2**31 else found - 2**32
    return 0 if found == -(2**31) else abs(found)


def overwrite_epoch(stack: Stack, transactional_id: str, producer_id: int, epoch: int) -> None:
    """Store the state of a transactional ID without a transaction. Brokers take such records from their Admin client's
    ID only."""
    producer = Producer({"bootstrap.servers": stack.direct_bootstrap, "client.id": "__admin_client"})
    key = struct.pack(">hh", 0, len(transactional_id)) + transactional_id.encode()
    value = VALUE.pack(0, producer_id, epoch, 60_000, EMPTY, -1, int(time.time() * 1000), -1)
    errors: list[object] = []
    producer.produce(
        STATES,
        value,
        key,
        partition=java_hash(transactional_id) % PARTITIONS,
        on_delivery=lambda e, _: errors.append(e),
    )
    assert producer.flush(60) == 0
    assert errors == [None]


@pytest.mark.timeout(300)
def test_a_producer_id_whose_epochs_are_used_up(restored: Stack) -> None:
    """The marker that fences the last epoch has epoch 32,767. The next session has another producer ID."""
    stack, topic, transactional_id = restored, new_topic(restored, "epochs", DISKLESS), f"last-{uuid.uuid4().hex[:6]}"
    near = stack.bootstrap("rack-b")
    last = RawProducer(near, transactional_id)
    overwrite_epoch(stack, transactional_id, last.producer_id, LAST_EPOCH - 1)
    coordinator = ask(near, FIND_COORDINATOR, 1, key=transactional_id, key_type=TRANSACTION)["node_id"]
    stack.stop_broker(coordinator)
    stack.start_broker(coordinator)
    producer_id = last.producer_id
    last.producer_id, last.epoch = last.begin_session()
    assert (last.producer_id, last.epoch) == (producer_id, LAST_EPOCH)
    assert (last.add(topic), last.produce(topic, b"committed"), last.end(commit=True)) == (NONE, NONE, NONE)
    wait_until_stable(near, topic, 2)
    assert (last.add(topic), last.produce(topic, b"never")) == (NONE, NONE)
    new = RawProducer(near, transactional_id)
    assert new.producer_id != last.producer_id
    wait_until_stable(near, topic, 4)
    markers = [(one[0], one[3], one[4]) for one in read_to_end(near, topic, 0, READ_UNCOMMITTED).batches if one[1]]
    assert markers == [(1, producer_id, LAST_EPOCH), (3, producer_id, LAST_EPOCH + 1)]
    assert last.produce(topic, b"late") == INVALID_PRODUCER_EPOCH
    assert last.add(topic) in FENCED
    assert last.end(commit=True) in FENCED
    assert (new.add(topic), new.produce(topic, b"of another ID"), new.end(commit=True)) == (NONE, NONE, NONE)
    wait_until_stable(near, topic, 6)
    assert end_offset(near, topic, READ_UNCOMMITTED) == 6
    with consumer(near, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in take(client, 2)] == [b"committed", b"of another ID"]
