"""Ways to run a scenario: at the brokers, or through the proxies, on a classic or on a diskless topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from proxy.demo.stack import Stack
from tests.conformance.model import RESTART_SECONDS, TIMEOUT_SECONDS, Client, ClientError, Consuming, Received
from tests.support.records import Sample, samples
from tests.support.waiting import wait_for

DIRECT, CLASSIC, DISKLESS = "direct", "classic", "diskless"
"""At the brokers; through the proxies; through the proxies on diskless topics."""
REPLICAS = 3
RECENT_MS = 600_000


@dataclass(slots=True)
class Way:
    """One way, with its own topics and groups."""

    name: str
    writers: str
    """`bootstrap.servers` of clients that send and administer."""
    readers: str
    """`bootstrap.servers` of clients that read: in another rack, through the proxies."""
    brokers: tuple[str, ...]
    """Addresses of the brokers themselves: they learn of a topic one after the other, and any of them may be asked."""
    _token: str = field(default_factory=lambda: uuid.uuid4().hex[:6])
    _given_ms: set[int] = field(default_factory=set)

    def name_of(self, label: str) -> str:
        """Return this way's own name for a topic or group, which contains the kind of topic."""
        return f"{'diskless.' if self.name == DISKLESS else ''}conformance-{label}-{self._token}"

    def topic(self, label: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic; return its name once all brokers know it."""
        name = self.name_of(label)
        client = _admin(self.writers)
        client.create_topics([NewTopic(name, partitions, REPLICAS, config=dict(configs or {}))])[name].result(60)
        for bootstrap in (*self.brokers, self.readers):
            wait_for(lambda bootstrap=bootstrap: self._is_known(bootstrap, name), f"topic {name}")  # type: ignore[misc]
        wait_for(lambda: self._is_led(client, name, partitions), f"leaders of {name}")
        return name

    def _is_led(self, client: AdminClient, topic: str, partitions: int) -> bool:
        # A broker lists a topic shortly before it accepts records: records that arrive meanwhile with acks 0 are lost.
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        try:
            return all(one.result(TIMEOUT_SECONDS) for one in client.list_offsets(asked).values())
        except KafkaException:
            return False

    def _is_known(self, bootstrap: str, topic: str) -> bool:
        # A new client asks the broker at its bootstrap address; later it asks any broker that it knows.
        client = AdminClient({"bootstrap.servers": bootstrap})
        found = client.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
        return found.error is None and all(one.leader >= 0 for one in found.partitions.values())

    def samples(self, client: Client, count: int, label: str) -> list[Sample]:
        """Return records that the client can send; the same for every way."""
        made = client.express(_samples(count, label))
        self._given_ms |= {sample.timestamp_ms for sample in made}
        return made

    def seen(self, records: Iterable[Received]) -> list[Received]:
        """Return records in a form that is the same for every way: in order, without the topic's own name."""
        ordered = sorted(records, key=lambda one: (one.topic, one.partition, one.offset))
        return [
            replace(one, topic=one.topic.replace(f"-{self._token}", "").removeprefix("diskless."), timestamp_ms=when)
            for one in ordered
            for when in [self._when(one.timestamp_ms)]
        ]

    def _when(self, timestamp_ms: int) -> int:
        """Return 0 for a timestamp that the client set by itself."""
        own = timestamp_ms not in self._given_ms and abs(time.time() * 1000 - timestamp_ms) < RECENT_MS
        return 0 if own else timestamp_ms


def ways_of(stack: Stack) -> list[Way]:
    """Return all three ways."""
    brokers = tuple(stack.direct_bootstrap.split(","))
    direct = Way(DIRECT, stack.direct_bootstrap, stack.direct_bootstrap, brokers)
    through = [Way(name, stack.bootstrap("rack-a"), stack.bootstrap("rack-c"), brokers) for name in (CLASSIC, DISKLESS)]
    return [direct, *through]


def error_of(act: Callable[[], Any]) -> str:
    """Return the name of the error that the library surfaces; empty if there is none."""
    try:
        act()
    except ClientError as error:
        return str(error)
    return ""


def take(client: Client, bootstrap: str, what: Consuming, count: int) -> list[Received]:
    """Return the next `count` records. A client of a group commits them and leaves.

    A client that gets nothing for a long time starts over (RESTART_SECONDS).
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    got: list[Received] = []
    while not got:
        assert time.monotonic() < deadline, f"none of {count} records came"
        got = _taken(client, bootstrap, what, count)
    return got


def _taken(client: Client, bootstrap: str, what: Consuming, count: int) -> list[Received]:
    """Return all of them, or nothing if none comes within RESTART_SECONDS."""
    began = time.monotonic()
    got: list[Received] = []
    events: Iterator[Any]
    with closing(client.consume(bootstrap, replace(what, count=count))) as events:  # type: ignore[type-var]
        for event in events:
            if isinstance(event, Received):
                got.append(event)
            passed_s = time.monotonic() - began
            if len(got) == count or (not got and passed_s > RESTART_SECONDS):
                break
            assert passed_s < TIMEOUT_SECONDS, f"only {len(got)} of {count} records came"
    return got


@cache
def _samples(count: int, label: str) -> list[Sample]:
    return samples(count, label, max_value_bytes=2_000)


@cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})
