"""Commands to the brokers themselves, without the proxies: find partitions, and move them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kio.index import load_request_schema

from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from proxy.wire.cold import milliseconds, nested
from tests.moves_under_load.books import Place
from tests.support.wire import Wire

METADATA, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = (3, 5), (43, 2), (45, 0), (46, 0)
PREFERRED = 0
ASK_SECONDS = 10.0
SETTLE_SECONDS = 90.0
PAUSE_SECONDS = 0.25


class NotSettled(Exception):
    """Raised when the brokers did not finish a change in time."""


class Partition(NamedTuple):
    """Leader and replicas of a partition, according to one broker."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Cluster:
    """The brokers of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def alive(self) -> list[int]:
        """Return the brokers that run and are not frozen."""
        return [node for node, broker in self._stack.kafka.brokers.items() if broker.running and not broker.paused]

    def ask(self, api: tuple[int, int], **fields: Any) -> Any:
        """Return the first answer of any broker. Raises NotSettled."""
        trouble = []
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            for node in self.alive():
                port = int(self._stack.kafka.address(node).rpartition(":")[2])
                try:
                    with Wire(socket.create_connection((HOST, port), ASK_SECONDS)) as wire:
                        return wire.ask(*api, **fields)
                except OSError as error:
                    trouble.append(f"broker {node}: {error!r}")
            time.sleep(PAUSE_SECONDS)
        raise NotSettled(f"no broker answers API {api[0]}: {trouble[-3:]}")

    def partitions(self, topics: Iterable[str]) -> dict[Place, Partition]:
        """Return the partitions of topics, once a broker knows these topics."""
        topic_type = nested(load_request_schema(*METADATA), "topics")
        asked = tuple(topic_type(name=name) for name in topics)
        answer = self.ask(METADATA, topics=asked, allow_auto_topic_creation=False)
        return {
            (topic.name, one.partition_index): Partition(one.leader_id, one.replica_nodes, one.isr_nodes)
            for topic in answer.topics
            for one in topic.partitions
        }

    def reassign(self, wanted: Mapping[Place, tuple[int, ...]]) -> None:
        """Send AlterPartitionReassignments without waiting for the result. Raises NotSettled if the brokers reject
        it."""
        topic_type = nested(load_request_schema(*ALTER_REASSIGNMENTS), "topics")
        partition_type = nested(topic_type, "partitions")
        topics = tuple(
            topic_type(
                name=name,
                partitions=tuple(
                    partition_type(partition_index=partition, replicas=replicas)
                    for (topic, partition), replicas in wanted.items()
                    if topic == name
                ),
            )
            for name in sorted({topic for topic, _ in wanted})
        )
        answer = self.ask(ALTER_REASSIGNMENTS, timeout=milliseconds(10_000), topics=topics)
        refused = [
            f"{topic.name}/{one.partition_index}: {one.error_code.name}"
            for topic in answer.responses
            for one in topic.partitions
            if one.error_code
        ]
        if answer.error_code or refused:
            raise NotSettled(f"reassignment is refused: {answer.error_code.name} {refused}")

    def elect(self, places: Iterable[Place]) -> None:
        """Make the first replica of each partition the leader, if possible."""
        topic_type = nested(load_request_schema(*ELECT_LEADERS), "topic_partitions")
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        asked = tuple(topic_type(topic=topic, partitions=tuple(parts)) for topic, parts in by_topic.items())
        self.ask(ELECT_LEADERS, election_type=PREFERRED, topic_partitions=asked, timeout=milliseconds(10_000))

    def wait_settled(self, topics: Iterable[str]) -> dict[Place, Partition]:
        """Wait until all replicas are in sync and no partition is moving; return the partitions. Raises NotSettled."""
        topics = list(topics)
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            found = self.partitions(topics)
            waiting = [place for place, one in found.items() if set(one.isr) != set(one.replicas) or one.leader < 0]
            if not waiting and not self.ask(LIST_REASSIGNMENTS, timeout=milliseconds(5_000), topics=None).topics:
                return found
            if time.monotonic() > deadline:
                raise NotSettled(f"replicas that are not in the ISR after {SETTLE_SECONDS:g} s: {waiting or 'moving'}")
            time.sleep(PAUSE_SECONDS)
