"""Transactions over classic and diskless topics, with unmodified clients and with requests that only a zombie sends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from proxy.demo.stack import Stack
from tests.support.confluent import consumer, produce, take
from tests.support.java_tools import TOOLS, JavaTools
from tests.support.raw import Raw
from tests.support.records import samples
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.transactional import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawProducer,
    committed_values,
    end_offset,
    send,
    transactional,
    wait_until_stable,
)
from tests.support.waiting import wait_for

NONE = 0
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, DENIED, PRODUCER_FENCED = 47, 48, 53, 90
LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
RACK = "rack-b"
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def diskless(stack: Stack) -> str:
    return new_topic(stack, "transactional", DISKLESS)


@pytest.fixture
def classic(stack: Stack) -> str:
    return new_topic(stack, "transactional", CLASSIC)


@pytest.fixture
def near(stack: Stack) -> str:
    """Return the address of a proxy."""
    return stack.bootstrap(RACK)


def test_offsets_of_a_group_are_committed_with_the_records(near: str, classic: str, diskless: str) -> None:
    """Read a diskless topic, write to both kinds; what an aborted transaction has read is read again."""
    output, group = f"{diskless}-group", f"group-{uuid.uuid4().hex[:6]}"
    produce(near, diskless, samples(6, "input"))
    producer = transactional(near, output)
    for commit in (False, True):
        with consumer(near, group_id=group, isolation_level="read_committed") as source:
            source.subscribe([diskless])
            taken = take(source, 6)
            producer.begin_transaction()
            for message in taken:
                producer.produce(classic, message.value(), partition=0)
            producer.send_offsets_to_transaction(
                source.position(source.assignment()), source.consumer_group_metadata(), TIMEOUT_SECONDS
            )
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_SECONDS)
    with consumer(near, isolation_level="read_committed") as client:
        client.assign([TopicPartition(classic, 0, 0)])
        assert [message.value() for message in take(client, 6)] == [message.value() for message in taken]
    with consumer(near, group_id=group) as client:
        (committed,) = client.committed([TopicPartition(diskless, 0)], timeout=TIMEOUT_SECONDS)
        assert committed.offset == 6


def test_a_new_session_aborts_the_transaction_of_the_one_before(near: str, diskless: str) -> None:
    old = transactional(near, diskless)
    old.begin_transaction()
    send(old, diskless, b"never")
    new = transactional(near, diskless)
    wait_until_stable(near, diskless, 2)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(TIMEOUT_SECONDS)
    assert caught.value.args[0].fatal(), caught.value
    new.begin_transaction()
    send(new, diskless, b"kept")
    new.commit_transaction(TIMEOUT_SECONDS)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_a_zombie_is_rejected_at_every_step(near: str, diskless: str) -> None:
    """It adds a partition late, and its batches come late: before and after the transaction that replaces it."""
    zombie = RawProducer(near, diskless)
    assert (zombie.add(diskless), zombie.produce(diskless, b"never")) == (NONE, NONE)
    new = RawProducer(near, diskless)
    assert (new.producer_id, new.epoch > zombie.epoch) == (zombie.producer_id, True)
    wait_until_stable(near, diskless, 2)
    assert zombie.produce(diskless, b"late") == INVALID_PRODUCER_EPOCH
    assert zombie.add(diskless) in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    assert zombie.end(commit=True) in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    assert (new.add(diskless), new.produce(diskless, b"kept")) == (NONE, NONE)
    assert zombie.produce(diskless, b"late") == INVALID_PRODUCER_EPOCH
    assert new.end(commit=True) == NONE
    assert committed_values(near, diskless, 1) == [b"kept"]
    assert end_offset(near, diskless, READ_UNCOMMITTED) == 4


def test_a_batch_after_the_end_of_its_transaction_is_rejected(near: str, diskless: str) -> None:
    """No session follows, so the producer's epoch is the same: only the marker is between them."""
    producer = RawProducer(near, diskless)
    assert (producer.add(diskless), producer.produce(diskless, b"kept")) == (NONE, NONE)
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 2)
    assert producer.produce(diskless, b"late") == INVALID_TXN_STATE
    assert (producer.add(diskless), producer.produce(diskless, b"never")) == (NONE, NONE)
    assert producer.end(commit=False) == NONE
    wait_until_stable(near, diskless, 4)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_a_transaction_without_data_does_not_end_the_next_one(near: str, diskless: str) -> None:
    """Its marker lies in the placeholder topic and has no place in the diskless log."""
    producer = RawProducer(near, diskless)
    for _ in range(3):
        assert (producer.add(diskless), producer.end(commit=True)) == (NONE, NONE)
    assert (producer.add(diskless), producer.produce(diskless, b"open")) == (NONE, NONE)
    assert [end_offset(near, diskless, isolation) for isolation in LEVELS] == [1, 0]
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 2)
    assert committed_values(near, diskless, 1) == [b"open"]


def test_a_transaction_that_times_out_is_aborted(near: str, diskless: str) -> None:
    """Brokers look for such transactions every ten seconds. They abort them with the next epoch."""
    slow = RawProducer(near, diskless, timeout_ms=1_000)
    assert (slow.add(diskless), slow.produce(diskless, b"never")) == (NONE, NONE)
    wait_until_stable(near, diskless, 2)
    assert slow.produce(diskless, b"late") == INVALID_PRODUCER_EPOCH
    assert slow.add(diskless) in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    assert slow.end(commit=True) in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    new = RawProducer(near, diskless)
    assert (new.add(diskless), new.produce(diskless, b"kept"), new.end(commit=True)) == (NONE, NONE, NONE)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_a_transaction_has_hundreds_of_partitions(stack: Stack, near: str) -> None:
    """Every partition is enlisted by one request, and each gets its marker."""
    count = 300
    topic = new_topic(stack, "wide", DISKLESS, count)
    producer = transactional(near, topic)
    for commit in (False, True):
        producer.begin_transaction()
        for partition in range(count):
            producer.produce(topic, b"%d" % commit, partition=partition)
        assert producer.flush(TIMEOUT_SECONDS) == 0  # an abort would purge what is not sent yet
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_SECONDS)
    with consumer(near, isolation_level="read_committed") as client:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        messages = take(client, count)
    assert {(message.partition(), message.value()) for message in messages} == {(one, b"1") for one in range(count)}
    with Raw(near) as raw:
        for partition in range(count):
            wait_for(lambda at=partition: end_offset(raw, topic, READ_COMMITTED, at) == 4, "the last marker")


def test_a_batch_needs_the_partition_and_the_transactional_id(near: str, diskless: str) -> None:
    producer = RawProducer(near, diskless)
    assert producer.produce(diskless, b"not added") == INVALID_TXN_STATE
    assert producer.add(diskless) == NONE
    assert producer.produce(diskless, b"of nobody", transactional_id=None) == DENIED
    assert producer.produce(diskless, b"kept") == NONE
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 2)


@pytest.fixture
def waiting(near: str, diskless: str) -> Iterator[Consumer]:
    with consumer(near, isolation_level="read_committed", fetch_wait_max_ms=30_000) as client:
        client.assign([TopicPartition(diskless, 0, 0)])
        client.consume(1, 0.5)
        yield client


def test_a_waiting_reader_is_woken_by_the_end_of_a_transaction(near: str, diskless: str, waiting: Consumer) -> None:
    producer = transactional(near, diskless)
    producer.begin_transaction()
    send(producer, diskless, b"kept")
    assert waiting.consume(1, 0.5) == []
    producer.commit_transaction(TIMEOUT_SECONDS)
    assert [message.value() for message in take(waiting, 1, 15)] == [b"kept"]


async def test_aiokafka_commits_and_aborts(near: str, diskless: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=near, transactional_id=diskless)
    await producer.start()
    try:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(diskless, b"%d" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    finally:
        await producer.stop()
    await asyncio.to_thread(wait_until_stable, near, diskless, 8)
    assert await asyncio.to_thread(committed_values, near, diskless, 2) == [b"0", b"2"]


def test_old_markers_leave_the_placeholder_topic(stack: Stack, near: str, diskless: str) -> None:
    """The next transaction's marker has the next offset there, and ends it."""
    direct, partition = AdminClient({"bootstrap.servers": stack.direct_bootstrap}), TopicPartition(diskless, 0)

    def kept() -> tuple[int, int]:
        """Return the first offset of the placeholder topic, and the one after its last."""
        found = [direct.list_offsets({partition: spec}) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
        first, end = (answer[partition].result(30).offset for answer in found)
        return first, end

    producer = RawProducer(near, diskless)
    for number in range(3):
        assert (producer.add(diskless), producer.produce(diskless, b"%d" % number)) == (NONE, NONE)
        assert producer.end(commit=True) == NONE
    wait_for(lambda: kept() == (3, 3), "old markers are deleted")
    assert (producer.add(diskless), producer.produce(diskless, b"3"), producer.end(commit=True)) == (NONE, NONE, NONE)
    wait_until_stable(near, diskless, 8)
    assert committed_values(near, diskless, 4) == [b"0", b"1", b"2", b"3"]


def test_an_operator_ends_a_transaction(stack: Stack, near: str, diskless: str, tools: JavaTools) -> None:
    """`kafka-transactions abort` finds the producer by the first offset of its transaction."""
    producer = RawProducer(near, diskless)
    assert (producer.add(diskless), producer.produce(diskless, b"never")) == (NONE, NONE)
    command = ("--bootstrap-server", stack.bootstrap("rack-c"), "abort", "--topic", diskless, "--partition", "0")
    tools.check(f"{TOOLS}.TransactionsCommand", *command, "--start-offset", "0")
    wait_until_stable(near, diskless, 2)
    assert producer.produce(diskless, b"late") == INVALID_TXN_STATE
    assert producer.end(commit=True) == NONE
    assert end_offset(near, diskless, READ_UNCOMMITTED) == 2
