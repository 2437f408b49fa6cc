"""Read classic topics in the client's rack, and check with broker metrics which brokers served the bytes."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.demo.stack import Stack
from tests.support.broker_metrics import Served
from tests.support.java_tools import JavaTools
from tests.support.metrics import Metrics
from tests.support.whole_topics import Partitions, Read, Whole, by_hand

PARTITIONS = 12
RECORDS = 250
"""Records in each partition."""
VALUE_BYTES = 1_200
SMALL_BATCHES = {"batch.size": 32_768, "linger.ms": 20, "enable.idempotence": True}
TIMEOUT_SECONDS = 60.0
ATTEMPTS = 3
"""Number of attempts. If the machine stalls for a second, a leader may have to serve reads, and then that must be
counted."""


class Filled(NamedTuple):
    """A topic whose records are complete: nobody appends to it any more."""

    name: str
    leaders: Sequence[int]
    """Offsets of each partition."""
    records: Partitions

    @property
    def counts(self) -> dict[int, int]:
        """Return the number of records by partition."""
        return {partition: len(records) for partition, records in self.records.items()}

    @property
    def value_bytes(self) -> int:
        """Return the bytes of all values. Nothing is compressed, so brokers must send at least this many bytes."""
        return sum(len(one.value or b"") for records in self.records.values() for one in records)


def rotated_topic(stack: Stack, label: str, partitions: int, direct: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Create a topic with all partitions on every broker and the leaders spread; return its name and the leaders."""
    name, nodes = f"{label}-{uuid.uuid4().hex[:6]}", list(stack.kafka.racks)
    assignment = [nodes[turn % len(nodes) :] + nodes[: turn % len(nodes)] for turn in range(partitions)]
    client = AdminClient(dict(direct))
    client.create_topics([NewTopic(name, partitions, replica_assignment=assignment)], request_timeout=30)[name].result(
        40
    )
    leaders = wait_in_sync(client, name, len(nodes))
    assert set(leaders) == set(nodes), leaders
    return name, leaders


def filled_topic(stack: Stack, label: str, settings: Mapping[str, Any] | None = None) -> Filled:
    """Create a topic and write its records directly to the brokers. Every replica has all records; every broker leads
    some.

    `settings` go to the writer, for brokers that require more than an address.
    """
    direct = {"bootstrap.servers": stack.direct_bootstrap, **(settings or {})}
    name, leaders = rotated_topic(stack, label, PARTITIONS, direct)
    chance = random.Random(name)
    producer = Producer({**direct, **SMALL_BATCHES})
    sent: Partitions = {partition: [] for partition in range(PARTITIONS)}
    for number in range(RECORDS):
        for partition, records in sent.items():
            key = b"%d" % (number % 7)
            value = b"%s/%d/%d/%s" % (
                name.encode(),
                partition,
                number,
                chance.randbytes(VALUE_BYTES // 2).hex().encode(),
            )
            producer.produce(name, value, key, partition)
            records.append(Read(number, key, value))
        producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    wait_in_sync(AdminClient(direct), name, len(stack.kafka.racks))
    return Filled(name, leaders, sent)


def wait_in_sync(client: AdminClient, name: str, replicas: int) -> list[int]:
    """Wait until `count` replicas of every partition are in sync; return the leaders."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        partitions = client.list_topics(name, timeout=30).topics[name].partitions
        if partitions and all(len(one.isrs) == replicas and one.leader > 0 for one in partitions.values()):
            return [partitions[index].leader for index in sorted(partitions)]
        assert time.monotonic() < deadline, {index: one.isrs for index, one in partitions.items()}
        time.sleep(0.1)


def whole(stack: Stack, rack: str, topic: Filled, tools: JavaTools, directory: Path, **more: Any) -> Whole:
    """Return the topic as it is read through the rack's proxy."""
    return Whole(stack.bootstrap(rack), topic.name, topic.counts, tools, directory, **more)


def warm_up(stack: Stack, topic: Filled, tools: JavaTools, directory: Path) -> None:
    """Read the topic once through every rack's proxy, so that each proxy knows it."""
    for rack in stack.kafka.racks.values():
        assert by_hand(4)(whole(stack, rack, topic, tools, directory)) == topic.records


class Oracle:
    """Measures which brokers have served the topic since this object was created, and which reads the proxies sent to
    leaders."""

    def __init__(self, stack: Stack, tools: JavaTools, topic: str) -> None:
        self._stack = stack
        self._served = Served(stack, tools, topic)
        self._before = self._leader_bytes()

    def _leader_bytes(self) -> float:
        return sum(Metrics(self._stack, proxy).value("leader_read_bytes_total") for proxy in self._stack.proxies)

    def by_rack(self) -> dict[str, int]:
        """Return record bytes by rack, from the brokers' own metrics."""
        return self._served.by_rack()

    def leader_bytes(self) -> float:
        """Return the proxies' count of bytes of all topics that were read from a leader of another rack."""
        return self._leader_bytes() - self._before


def read_at_home(
    stack: Stack, tools: JavaTools, topic: str, rack: str, read: Callable[[], Partitions], expected: Partitions
) -> int:
    """Read the whole topic with all records from the rack; return the bytes that its broker served.

    The proxies must count every byte from another rack as a leader's. One of a few attempts must have no such bytes.
    """
    for _ in range(ATTEMPTS):
        oracle = Oracle(stack, tools, topic)
        assert read() == expected
        served, from_leaders = oracle.by_rack(), oracle.leader_bytes()
        assert sum(served.values()) - served.get(rack, 0) == from_leaders, served
        if not from_leaders:
            return served[rack]
    raise AssertionError(f"in none of {ATTEMPTS} attempts was all read in {rack}: {served}")
