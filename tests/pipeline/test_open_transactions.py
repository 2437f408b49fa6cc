"""Merges and compactions of real topics while a transaction is open in them, and after its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from proxy.config import Settings
from proxy.demo.stack import Stack
from tests.pipeline.compact.running import compact
from tests.pipeline.merge.logs import merge
from tests.support.confluent import TIMEOUT_SECONDS, consumer, to_end
from tests.support.topics import DISKLESS, new_topic
from tests.support.transactional import READ_COMMITTED, end_offset, transactional, wait_until_stable
from tests.support.waiting import wait_for

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}


def read(near: str, topic: str, isolation: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of all records that a consumer gets."""
    with consumer(near, isolation_level=isolation, enable_partition_eof=True) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        return [(message.offset(), message.key(), message.value()) for message in to_end(client)]


def write(producer: Any, topic: str, *records: tuple[bytes, bytes]) -> None:
    """Write records in one row each."""
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
        assert producer.flush(TIMEOUT_SECONDS) == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_is_open_during_a_merge(
    spark: Any, stack: Stack, stack_settings: Settings, commit: bool
) -> None:
    near, topic = stack.bootstrap("rack-a"), new_topic(stack, "open", DISKLESS)
    slow, quick = transactional(near, f"{topic}-slow"), transactional(near, f"{topic}-quick")
    slow.begin_transaction()
    write(slow, topic, (b"a", b"slow 0"))
    for number in range(4):
        quick.begin_transaction()
        write(quick, topic, (b"a", b"quick %d" % number), (b"b", b"quick %d" % number))
        (quick.abort_transaction if number % 2 else quick.commit_transaction)(TIMEOUT_SECONDS)
    write(slow, topic, (b"b", b"slow 1"))
    before = read(near, topic, "read_uncommitted")
    assert [len(before), read(near, topic, "read_committed"), end_offset(near, topic, READ_COMMITTED)] == [10, [], 0]

    assert merge(spark, stack_settings, topic).findings == []
    for rack in stack.options.racks:
        there = stack.bootstrap(rack)
        assert read(there, topic, "read_uncommitted") == before
        assert [read(there, topic, "read_committed"), end_offset(there, topic, READ_COMMITTED)] == [[], 0]

    (slow.commit_transaction if commit else slow.abort_transaction)(TIMEOUT_SECONDS)
    wait_until_stable(near, topic, 15)
    kept = [
        one for one in before if one[2] in (b"quick 0", b"quick 2") or (commit and one[2] in (b"slow 0", b"slow 1"))
    ]
    assert read(near, topic, "read_committed") == kept
    assert merge(spark, stack_settings, topic).findings == []
    for rack in stack.options.racks:
        assert read(stack.bootstrap(rack), topic, "read_committed") == kept
        assert read(stack.bootstrap(rack), topic, "read_uncommitted") == before


@pytest.mark.timeout(400)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_is_open_during_a_compaction(
    spark: Any, stack: Stack, stack_settings: Settings, commit: bool
) -> None:
    """Nothing is compacted from the open transaction on, although later transactions have written the same keys."""
    near, topic = stack.bootstrap("rack-a"), new_topic(stack, "open", DISKLESS, configs=COMPACTED)
    slow, quick = transactional(near, f"{topic}-slow"), transactional(near, f"{topic}-quick")
    for number in range(3):
        quick.begin_transaction()
        write(quick, topic, (b"a", b"early %d" % number))
        (quick.abort_transaction if number == 2 else quick.commit_transaction)(TIMEOUT_SECONDS)
    slow.begin_transaction()
    write(slow, topic, (b"b", b"slow"))
    quick.begin_transaction()
    write(quick, topic, (b"a", b"late"), (b"b", b"late"))
    quick.commit_transaction(TIMEOUT_SECONDS)
    wait_until_stable(near, topic, 6)

    assert run_compaction(stack_settings, spark, topic).findings == []
    assert [value for _, _, value in read(near, topic, "read_committed")] == [b"early 1"]
    open_ones = [value for _, _, value in read(near, topic, "read_uncommitted")]
    assert open_ones == [b"early 1", b"slow", b"late", b"late"]

    (slow.commit_transaction if commit else slow.abort_transaction)(TIMEOUT_SECONDS)
    wait_until_stable(near, topic, 11)
    quick.begin_transaction()
    write(quick, topic, (b"c", b"end"))
    quick.commit_transaction(TIMEOUT_SECONDS)
    wait_until_stable(near, topic, 13)
    compacted = [(7, b"a", b"late"), (8, b"b", b"late"), (11, b"c", b"end")]
    for _ in range(2):
        assert run_compaction(stack_settings, spark, topic).findings == []
        for rack in stack.options.racks:
            # A proxy may serve the rows that it has cached until their objects are deleted.
            wait_for(
                lambda at=stack.bootstrap(rack): read(at, topic, "read_committed") == compacted,
                f"the compacted records in {rack}",
            )


def run_compaction(settings: Settings, spark: Any, topic: str) -> Any:
    return asyncio.run(compact(settings, spark, topic, force=True))
