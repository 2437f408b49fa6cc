"""`read_committed` in a rack without the leader: followers report transactions exactly as leaders do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from tests.support.java_tools import JavaTools
from tests.support.local_reads import Oracle, read_at_home, rotated_topic
from tests.support.questions import ask
from tests.support.whole_topics import FETCH, Partitions, Whole, confluent_kafka, java, kcat

PARTITIONS = 3
SIZE = 5
"""Records that a transaction adds to each partition."""
COMMITTED = 3 * SIZE
"""Committed records of each partition, as sent below."""
FAR_RACK = "rack-b"
VERSIONS = (4, 7, 10, 11, 12)
TIMEOUT_SECONDS = 30.0


class Written(NamedTuple):
    """A topic with committed transactions, aborted ones, an open one, and records after the open one's beginning."""

    name: str
    leaders: list[int]
    committed: dict[int, list[bytes]]
    """Values that `read_committed` shows, by partition."""


class Writer:
    """One transactional producer, at the brokers."""

    def __init__(self, stack: Stack, topic: str, label: str) -> None:
        self._topic, self._label = topic, label
        configs = {"bootstrap.servers": stack.direct_bootstrap, "transactional.id": f"{topic}-{label}"}
        self.client = Producer({**configs, "transaction.timeout.ms": 600_000})
        self.client.init_transactions(TIMEOUT_SECONDS)

    def begin(self) -> dict[int, list[bytes]]:
        """Begin a transaction and send its records; return their values by partition."""
        self.client.begin_transaction()
        unique = uuid.uuid4().hex
        sent = {
            partition: [b"%s %s %d" % (self._label.encode(), unique.encode(), number) for number in range(SIZE)]
            for partition in range(PARTITIONS)
        }
        for partition, values in sent.items():
            for value in values:
                self.client.produce(self._topic, value, partition=partition)
        assert self.client.flush(TIMEOUT_SECONDS) == 0
        return sent


@pytest.fixture(scope="module")
def written(running_stack: Stack) -> Iterator[Written]:
    direct = {"bootstrap.servers": running_stack.direct_bootstrap}
    name, leaders = rotated_topic(running_stack, "local-transactions", PARTITIONS, direct)
    one, other, last = (Writer(running_stack, name, label) for label in ("one", "other", "last"))
    kept: list[dict[int, list[bytes]]] = []
    kept.append(one.begin())
    one.client.commit_transaction(TIMEOUT_SECONDS)
    one.begin()
    kept.append(other.begin())
    one.client.abort_transaction(TIMEOUT_SECONDS)
    other.client.commit_transaction(TIMEOUT_SECONDS)
    other.begin()
    other.client.abort_transaction(TIMEOUT_SECONDS)
    kept.append(one.begin())
    one.client.commit_transaction(TIMEOUT_SECONDS)
    last.begin()
    one.begin()  # committed, but after an open transaction
    one.client.commit_transaction(TIMEOUT_SECONDS)
    committed = {partition: [value for sent in kept for value in sent[partition]] for partition in range(PARTITIONS)}
    for partition, leader in enumerate(leaders):  # the proxy learns about the topic
        answers(far_listener(running_stack, leader), name, partition, VERSIONS[0], isolation_level=0)
    yield Written(name, leaders, committed)
    last.client.abort_transaction(TIMEOUT_SECONDS)


@pytest.mark.parametrize("reader", [confluent_kafka, kcat, java])
def test_clients_get_what_they_get_at_the_brokers(
    stack: Stack, tools: JavaTools, written: Written, tmp_path: Path, reader: Callable[[Whole], Partitions]
) -> None:
    counts = dict.fromkeys(range(PARTITIONS), COMMITTED)
    direct, proxied = (
        Whole(bootstrap, written.name, counts, tools, tmp_path, read_committed=True)
        for bootstrap in (stack.direct_bootstrap, stack.bootstrap(FAR_RACK))
    )
    expected = reader(direct)
    assert {index: [one.value for one in records] for index, records in expected.items()} == written.committed
    read_at_home(stack, tools, written.name, FAR_RACK, lambda: reader(proxied), expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_the_leaders_field_by_field(stack: Stack, tools: JavaTools, written: Written, version: int) -> None:
    """Compare both ends, aborted transactions and records from several offsets, in and out of range."""
    for partition, leader in enumerate(written.leaders):
        for isolation_level in (0, 1):
            asked = (written.name, partition, version, isolation_level)
            directly = answers(f"{HOST}:{stack.ports.broker(leader)}", *asked)
            assert [one["error_code"] for one in directly] == [0, 0, 0, 0, 1, 1]
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while True:  # a follower may not know yet how far its leader is
                oracle = Oracle(stack, tools, written.name)
                proxied = answers(far_listener(stack, leader), *asked)
                served = oracle.by_rack()
                if proxied == directly and list(served) == [FAR_RACK]:
                    break
                assert time.monotonic() < deadline, (proxied, directly, served)
                time.sleep(0.1)


def far_listener(stack: Stack, node_id: int) -> str:
    """Return the broker's listener at the proxy of the reading rack."""
    return f"{HOST}:{stack.ports.broker_port_start(list(stack.proxies).index(FAR_RACK)) + node_id}"


def answers(address: str, topic: str, partition: int, version: int, isolation_level: int) -> list[dict[str, Any]]:
    """Return the partition's answers from its beginning, from the middle, at and near its end, and out of range."""
    found = []
    end = 0
    for place in (0, 0.3, 0.7, 1, 2, -1):
        asked = {
            "partition": partition,
            "current_leader_epoch": -1,
            "fetch_offset": int(place * end),
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 65_536,
        }
        limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "replica_id": -1, "session_epoch": -1}
        topics = [{"topic": topic, "partitions": [asked]}]
        answer = ask(address, FETCH, version, topics=topics, isolation_level=isolation_level, **limits)
        assert answer.get("error_code", 0) == 0
        one = answer["responses"][0]["partitions"][0]
        end = end or one["high_watermark"]
        found.append(one)
    return found
