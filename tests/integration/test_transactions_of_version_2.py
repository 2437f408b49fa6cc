"""Transactions of version 2 (KIP-890): Produce adds the partitions, and every transaction has an epoch of its own."""

from __future__ import annotations

import pytest

from proxy.demo.stack import Stack
from tests.support.java_tools import TOOLS, JavaTools
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.transactional import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawProducer,
    committed_values,
    end_offset,
    send,
    sent_together,
    transactional,
    wait_until_stable,
)

API_VERSIONS, DESCRIBE_TRANSACTIONS = 18, 65
NONE, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS, DENIED = 0, 47, 51, 53
RACK, OTHER_RACK = "rack-b", "rack-c"
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def diskless(stack: Stack) -> str:
    return new_topic(stack, "implicit", DISKLESS)


@pytest.fixture
def near(stack: Stack) -> str:
    """Return the address of a proxy."""
    return stack.bootstrap(RACK)


@pytest.fixture
def producer(near: str, diskless: str) -> RawProducer:
    return RawProducer(near, diskless, transaction_version=2)


def test_clients_may_use_it(near: str) -> None:
    answer = ask(near, API_VERSIONS, 3, client_software_name="test", client_software_version="1")
    versions = {one["api_key"]: one["max_version"] for one in answer["api_keys"]}
    assert (versions[0], versions[26], versions[28]) == (13, 5, 5)
    (feature,) = (one for one in answer["finalized_features"] if one["name"] == "transaction.version")
    assert feature["max_version_level"] == 2


def test_produce_adds_the_partition(near: str, diskless: str, producer: RawProducer) -> None:
    """One batch and several; committed and aborted. Nobody adds anything."""
    kept, end = [], 0
    for number, commit in enumerate((True, False, True, True)):
        epoch, values = producer.epoch, [b"%d-%d" % (number, one) for one in range(3)]
        for place, value in enumerate(values[: number + 1]):
            assert (producer.produce if place else producer.begin)(diskless, value) == NONE
            end += 1
        assert end_offset(near, diskless, READ_UNCOMMITTED) == end
        assert producer.end(commit=commit) == NONE
        assert producer.epoch == epoch + 1
        end += 1
        kept += values[: number + 1] if commit else []
        wait_until_stable(near, diskless, end)
    assert committed_values(near, diskless, len(kept)) == kept


def test_batches_that_are_pipelined_keep_their_order(near: str, diskless: str, producer: RawProducer) -> None:
    """The first request waits until the partition is added, and the others wait for it."""
    bodies = []
    for number in range(5):
        bodies.append(producer.body(diskless, [b"%d" % number], version=12))
        producer.took(diskless, 0, 1)
    with Raw(near) as raw:
        assert sent_together(raw, bodies, 12) == [NONE] * 5
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 6)
    assert committed_values(near, diskless, 5) == [b"%d" % number for number in range(5)]


def test_a_zombie_is_rejected_at_every_proxy(stack: Stack, near: str, diskless: str, producer: RawProducer) -> None:
    """The first proxy has added the partition for it, the other one has not."""
    assert producer.produce(diskless, b"never") == NONE
    new = RawProducer(near, diskless, transaction_version=2)
    wait_until_stable(near, diskless, 2)
    for address in (near, stack.bootstrap(OTHER_RACK)):
        assert producer.produce(diskless, b"late", address=address) == INVALID_PRODUCER_EPOCH
    assert new.produce(diskless, b"kept") == NONE
    for address in (near, stack.bootstrap(OTHER_RACK)):
        assert producer.produce(diskless, b"late", address=address) == INVALID_PRODUCER_EPOCH
    assert new.end(commit=True) == NONE
    wait_until_stable(near, diskless, 4)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_a_batch_after_the_end_of_its_transaction_is_rejected(
    stack: Stack, near: str, diskless: str, producer: RawProducer
) -> None:
    assert producer.produce(diskless, b"kept") == NONE
    ended = producer.epoch
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 2)
    now, producer.epoch = producer.epoch, ended
    for address in (near, stack.bootstrap(OTHER_RACK)):
        assert producer.produce(diskless, b"late", address=address) == INVALID_PRODUCER_EPOCH
    producer.epoch = now
    assert (producer.begin(diskless, b"never"), producer.end(commit=False)) == (NONE, NONE)
    wait_until_stable(near, diskless, 4)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_proxies_share_a_transaction(stack: Stack, near: str, diskless: str, producer: RawProducer) -> None:
    values = [b"%d" % number for number in range(6)]
    for number, value in enumerate(values):
        assert producer.produce(diskless, value, address=stack.bootstrap(RACK if number % 2 else OTHER_RACK)) == NONE
    assert end_offset(near, diskless, READ_COMMITTED) == 0
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 7)
    assert committed_values(near, diskless, 6) == values


def test_a_client_moves_to_version_2_between_two_transactions(near: str, diskless: str) -> None:
    """Its session goes on, so the epoch of the first transaction is that of the second."""
    producer = RawProducer(near, diskless)
    assert (producer.add(diskless), producer.produce(diskless, b"1"), producer.end(commit=True)) == (NONE, NONE, NONE)
    producer.transaction_version = 2
    assert (producer.begin(diskless, b"2"), producer.end(commit=True)) == (NONE, NONE)
    wait_until_stable(near, diskless, 4)
    assert committed_values(near, diskless, 2) == [b"1", b"2"]


def test_nobody_writes_under_the_transactional_id_of_another(near: str, diskless: str, producer: RawProducer) -> None:
    assert producer.produce(diskless, b"of nobody", transactional_id=None) == DENIED
    assert producer.produce(diskless, b"kept") == NONE
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 2)


def test_after_an_operator_has_ended_it_the_partition_is_added_again(
    stack: Stack, near: str, diskless: str, producer: RawProducer, tools: JavaTools
) -> None:
    """`kafka-transactions abort` writes a marker of the same epoch, and the coordinator does not know of it."""
    assert producer.produce(diskless, b"never") == NONE
    command = ("--bootstrap-server", stack.bootstrap(OTHER_RACK), "abort", "--topic", diskless, "--partition", "0")
    tools.check(f"{TOOLS}.TransactionsCommand", *command, "--start-offset", "0")
    wait_until_stable(near, diskless, 2)
    assert producer.produce(diskless, b"kept") == CONCURRENT_TRANSACTIONS
    assert producer.produce(diskless, b"kept") == NONE
    assert producer.end(commit=True) == NONE
    wait_until_stable(near, diskless, 4)
    assert committed_values(near, diskless, 1) == [b"kept"]


def test_java_copies_exactly_once(stack: Stack, near: str, diskless: str, tools: JavaTools) -> None:
    """Kafka's own `TransactionalMessageCopier`, whose client uses version 2 if it may: each of its transactions has an
    epoch."""
    classic = new_topic(stack, "implicit", CLASSIC)
    sent = [b"%d" % number for number in range(40)]
    source = transactional(near, f"{diskless}-input")
    source.begin_transaction()
    send(source, classic, *sent)
    source.commit_transaction(TIMEOUT_SECONDS)
    output = ("--output-topic", diskless, "--transactional-id", diskless, "--consumer-group", diskless)
    tools.check(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", near, "--input-topic", classic, "--input-partition", "0", *output),
        *("--transaction-size", "5", "--max-messages", "40", "--enable-random-aborts"),
    )
    assert committed_values(near, diskless, 40) == sent
    found = [
        state
        for address in (stack.direct_bootstrap.split(","))
        for state in ask(address, DESCRIBE_TRANSACTIONS, 0, transactional_ids=[diskless])["transaction_states"]
        if state["error_code"] == NONE
    ]
    assert max(state["producer_epoch"] for state in found) >= 8
