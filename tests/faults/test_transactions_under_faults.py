"""Read-process-write loops while parts are killed: every input is copied once, and no aborted record is read."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from proxy.demo.process import Process
from proxy.demo.stack import Stack
from tests.support.confluent import consumer, to_end
from tests.support.java_tools import TOOLS
from tests.support.metrics import Metrics
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.transactional import READ_COMMITTED, READ_UNCOMMITTED, end_offset, send, transactional
from tests.support.waiting import wait_for

INPUTS = 100
"""Inputs of each partition."""
WAIT_SECONDS = 240.0
END_SECONDS = 60.0


class Copying:
    """A copier with an input topic and outputs of both kinds. It is started again when it ends."""

    partitions = 2

    def __init__(self, stack: Stack, directory: Path) -> None:
        self._stack = stack
        self.bootstrap = ",".join(stack.bootstrap(rack) for rack in stack.proxies)
        self.input = new_topic(stack, "input", DISKLESS, self.partitions)
        self.outputs = self.new_outputs()
        self.copier = Process("copier", self.command(), directory / "copier.log")

    def new_outputs(self) -> list[str]:
        return [new_topic(self._stack, "output", kind, self.partitions) for kind in (CLASSIC, DISKLESS)]

    def command(self) -> list[str]:
        """Return the command of a copier whose transactional ID and group have the name of the input."""
        return [sys.executable, "-m", "tests.support.copier", self.bootstrap, self.input, self.input, *self.outputs]

    def begin(self) -> None:
        """Write the inputs in one transaction for each partition, and start the copier."""
        producer = transactional(self.bootstrap, f"{self.input}-writer")
        for partition in range(self.partitions):
            producer.begin_transaction()
            send(producer, self.input, *(b"%d" % number for number in range(INPUTS)), partition=partition)
            producer.commit_transaction(END_SECONDS)
        self.copier.start()

    def copied(self) -> int:
        """Return how many inputs are copied, by the group's offsets; and start the copier again if it has ended."""
        if not self.copier.running:
            self.copier.start()
        with consumer(self.bootstrap, group_id=self.input, isolation_level="read_committed") as group:
            asked = [TopicPartition(self.input, partition) for partition in range(self.partitions)]
            try:
                return sum(max(one.offset, 0) for one in group.committed(asked, timeout=10))
            except KafkaException:
                return -1

    def wait_for(self, share: float) -> None:
        """Wait until this share of the inputs is copied."""
        wait_for(lambda: self.copied() >= share * self.partitions * INPUTS, f"{share:.0%} of the inputs", WAIT_SECONDS)

    def check(self) -> None:
        """Require every input once in each output, and that no transaction is left open."""
        self.copier.kill()
        expected = Counter(b"%d" % number for number in range(INPUTS))
        for topic in self.outputs:
            for partition in range(self.partitions):
                assert Counter(self._committed(topic, partition)) == expected, (topic, partition)

    def _committed(self, topic: str, partition: int) -> list[bytes | None]:
        """Read a partition with `read_committed` up to its end, once no transaction is open in it."""
        self._wait_until_stable(topic, partition)
        with consumer(self.bootstrap, isolation_level="read_committed", enable_partition_eof=True) as client:
            client.assign([TopicPartition(topic, partition, 0)])
            return [message.value() for message in to_end(client)]

    def _wait_until_stable(self, topic: str, partition: int) -> None:
        """Wait until the transaction that the copier's death has left open, if any, is aborted by a new session."""
        transactional(self.bootstrap, self.input)
        wait_for(lambda: self._ends(topic, partition)[0] == self._ends(topic, partition)[1], "the end of transactions")

    def _ends(self, topic: str, partition: int) -> tuple[int, int]:
        address = self._leader(topic, partition)
        levels = (READ_UNCOMMITTED, READ_COMMITTED)
        first, last = (end_offset(address, topic, level, partition) for level in levels)
        return first, last

    def _leader(self, topic: str, partition: int) -> str:
        with consumer(self.bootstrap) as client:
            known = client.list_topics(topic, timeout=END_SECONDS)
            broker = known.brokers[known.topics[topic].partitions[partition].leader]
            return f"{broker.host}:{broker.port}"


class AiokafkaCopying(Copying):
    """A copier with aiokafka."""

    def command(self) -> list[str]:
        module = "tests.support.aiokafka_copier"
        return [sys.executable, "-m", module, self.bootstrap, self.input, self.input, *self.outputs]


class JavaCopying(Copying):
    """Kafka's own copier, whose client uses transaction version 2; it aborts at random. It has one output."""

    partitions = 1

    def new_outputs(self) -> list[str]:
        return [new_topic(self._stack, "output", DISKLESS)]

    def command(self) -> list[str]:
        names = ("--transactional-id", self.input, "--consumer-group", self.input, "--output-topic", *self.outputs)
        return self._stack.java_command(
            f"{TOOLS}.TransactionalMessageCopier",
            *("--broker-list", self.bootstrap, "--input-topic", self.input, "--input-partition", "0", *names),
            *("--transaction-size", "5", "--max-messages", str(INPUTS), "--enable-random-aborts"),
        )


@contextmanager
def copying(stack: Stack, directory: Path, kind: type[Copying] = Copying) -> Iterator[Copying]:
    running = kind(stack, directory)
    running.begin()
    try:
        running.wait_for(0.1)
        yield running
        running.wait_for(1)
        running.check()
    finally:
        if running.copier.running:
            running.copier.kill()
        print(running.copier.log_tail(30))


def kill_client(stack: Stack, running: Copying) -> None:
    for share in (0.2, 0.35, 0.5):
        running.wait_for(share)
        running.copier.kill()


def kill_proxy(stack: Stack, running: Copying) -> None:
    for rack in stack.proxies:
        stack.kill_proxy(rack)
        stack.start_proxy(rack)


def kill_tail(stack: Stack, running: Copying) -> None:
    """Kill the proxy that follows most markers."""
    for share in (0.2, 0.5):
        running.wait_for(share)
        tail = max(stack.proxies, key=lambda rack: Metrics(stack, rack).value("markers_followed"))
        stack.kill_proxy(tail)
        running.wait_for(share + 0.1)
        stack.start_proxy(tail)


def kill_broker(stack: Stack, running: Copying) -> None:
    """The controller is another process."""
    for node_id in (1, 2):
        stack.kill_broker(node_id)
        running.wait_for(0.2 * node_id)
        stack.start_broker(node_id)


def restart_redis(stack: Stack, running: Copying) -> None:
    for share in (0.2, 0.5):
        running.wait_for(share)
        stack.kill_redis()
        stack.start_redis()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [kill_client, kill_proxy, kill_tail, kill_broker, restart_redis])
def test_every_input_is_copied_once(stack: Stack, tmp_path: Path, fault: Callable[[Stack, Copying], None]) -> None:
    with copying(stack, tmp_path) as running:
        fault(stack, running)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [kill_client, kill_proxy, kill_tail, kill_broker, restart_redis])
def test_java_copies_every_input_once(stack: Stack, tmp_path: Path, fault: Callable[[Stack, Copying], None]) -> None:
    with copying(stack, tmp_path, JavaCopying) as running:
        fault(stack, running)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [kill_client, kill_proxy, kill_broker])
def test_aiokafka_copies_every_input_once(
    stack: Stack, tmp_path: Path, fault: Callable[[Stack, Copying], None]
) -> None:
    with copying(stack, tmp_path, AiokafkaCopying) as running:
        fault(stack, running)


@pytest.mark.timeout(900)
def test_the_oldest_brokers_lose_nothing_either(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    """Kafka 3.3.2 knows transaction version 1 only."""
    stack = new_stack(broker_version="3.3.2", overrides={"diskless_append_commit_interval_ms": 50})
    for kind, fault in ((Copying, kill_broker), (JavaCopying, kill_proxy), (AiokafkaCopying, kill_client)):
        with copying(stack, tmp_path, kind) as running:
            fault(stack, running)
