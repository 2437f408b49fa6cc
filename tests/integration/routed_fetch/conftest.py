"""Logs with everything that a log may contain, led in one rack and read in another."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

from proxy.demo.stack import Stack
from tests.batches import GZIP, LZ4, SNAPPY, ZSTD, make_batch
from tests.support.routed import LEADER, Asked, delete_records, lead, produce, settle, topic_id
from tests.support.routed import fetch as fetch_from
from tests.support.topics import CLASSIC, create_topic
from tests.support.waiting import wait_for

REPLICAS = [LEADER, 1, 3]
FAR_REPLICAS = [LEADER, 3]
PLAIN, MARKED, OPEN, TRIMMED, EMPTY, FENCED = range(6)
"""Partitions: batches of two leader epochs, ended transactions, an open one, a log that begins late, an empty one. The
last one is like the first, for requests after which the proxy may not read a replica for a while."""
RECORDS = 3
"""Records in each batch."""
CODECS = (0, 0, 0, GZIP, SNAPPY, LZ4, ZSTD)
EPOCH_BEGINS = RECORDS * len(CODECS)
END = EPOCH_BEGINS + 3 * RECORDS
TRIMMED_START = 4
VALUE = os.urandom(300)
BATCH = bytes(make_batch([VALUE] * RECORDS))
SIZE = len(BATCH)


class Logs(NamedTuple):
    """The topics and partitions to read."""

    topic: str
    far: str
    """Topic with two partitions that have no replica in the proxy's rack."""
    ids: dict[str, bytes]

    def all(self, **values: int) -> list[Asked]:
        """Return all partitions, each from its beginning."""
        starts = {PLAIN: 0, MARKED: 0, OPEN: 0, TRIMMED: TRIMMED_START, EMPTY: 0}
        return [Asked(self.topic, partition, offset, **values) for partition, offset in starts.items()]


@pytest.fixture(scope="package")
def logs(running_stack: Stack) -> Iterator[Logs]:
    unique = uuid.uuid4().hex[:6]
    topic, far = f"routed-{unique}", f"routed-far-{unique}"
    first = [1, LEADER, 3]
    assignment = [first, REPLICAS, REPLICAS, REPLICAS, REPLICAS, first]
    create_topic(running_stack, topic, CLASSIC, assignment=assignment)
    create_topic(running_stack, far, CLASSIC, assignment=[FAR_REPLICAS] * 2)
    ids = {name: topic_id(running_stack, name) for name in (topic, far)}
    made = Logs(topic, far, ids)
    _wait_served(running_stack, made)
    for partition in (PLAIN, FENCED):
        for codec in CODECS:
            produce(running_stack, topic, partition, make_batch([VALUE] * RECORDS, codec=codec))
        lead(running_stack, topic, partition, REPLICAS)
        for _ in range(3):
            produce(running_stack, topic, partition, BATCH)
    for _ in range(3):
        produce(running_stack, topic, TRIMMED, BATCH)
        produce(running_stack, far, 0, BATCH)
        produce(running_stack, far, 1, BATCH)
    delete_records(running_stack, topic, TRIMMED, TRIMMED_START)
    _transactions(running_stack, topic)
    open_one = _transaction(running_stack, topic, OPEN)
    try:
        settle(running_stack, ids, *made.all(), Asked(topic, FENCED, 0))
        yield made
    finally:
        with suppress(KafkaException):  # the brokers end it at its timeout if other tests take longer
            open_one.abort_transaction(30)


def _wait_served(stack: Stack, made: Logs) -> None:
    asked = [Asked(made.topic, partition, 0) for partition in range(6)], [Asked(made.far, 0, 0), Asked(made.far, 1, 0)]

    def served() -> bool:
        for partitions, nodes in zip(asked, (REPLICAS, FAR_REPLICAS), strict=True):
            for node in nodes:
                answer = fetch_from(f"127.0.0.1:{stack.ports.broker(node)}", 11, partitions, made.ids)
                if any(one["error_code"] for topic in answer["responses"] for one in topic["partitions"]):
                    return False
        return True

    wait_for(served, "the new topics are served")


def _transactions(stack: Stack, topic: str) -> None:
    """Write records of no transaction, of a committed one, of two aborted ones, and again of none."""
    produce(stack, topic, MARKED, BATCH)
    for commit in (True, False, False):
        producer = _transaction(stack, topic, MARKED)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        produce(stack, topic, MARKED, BATCH)


def _transaction(stack: Stack, topic: str, partition: int) -> Producer:
    """Write in a transaction that stays open."""
    configs = {"bootstrap.servers": stack.direct_bootstrap, "transactional.id": uuid.uuid4().hex}
    producer = Producer({**configs, "transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE, partition=partition)
    assert producer.flush(60) == 0
    return producer
