"""Run unmodified clients as applications under load: each sends numbers, reads them back, and reports every error.

    with Applications(stack, stack.bootstrap("rack-a")) as applications:
        applications.wait_for_more()
        ...
        applications.finish()      # asserts that no error surfaced, and that nothing was lost, repeated or reordered

Every client has a classic and a diskless topic, with one idempotent producer and one consumer. If the stack has TLS,
clients use it. librdkafka runs the demo's load (`tests.support.load`) if it is not named as a client.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from proxy.demo.process import Process
from proxy.demo.security import ADMIN
from proxy.demo.stack import Stack
from tests.support import aiokafka_load, confluent_load
from tests.support.confluent import read_partitions
from tests.support.topics import KINDS, new_topic, tls_settings

CLIENTS = ("java", "aiokafka", "go")
PARTITIONS = aiokafka_load.PARTITIONS
RATE = 50
WAIT_SECONDS = 400.0
GO_CLIENT = Path(".servers/bin/kafka-go-client")
TOOLS = "org.apache.kafka.tools"
JAVA_PRODUCER = {
    # The tool gives up at the first error by default.
    "retries": "2147483647",
    "enable.idempotence": "true",
    "linger.ms": "5",
}


class Reported(NamedTuple):
    """A record that a client reports; `offset` is -1 if the client does not know it."""

    topic: str
    partition: int
    offset: int
    number: int


class Application:
    """A program that prints a JSON object per record; `parse` returns the record or the error in an object."""

    def __init__(self, name: str, command: Sequence[str], log: Path, parse: Callable[[dict[str, Any]], object]) -> None:
        self.name = name
        self._process = Process(name, command, log, stop_timeout_seconds=WAIT_SECONDS)
        self._parse = parse
        self._read_bytes = 0
        self.reported: list[Reported] = []
        self.errors: list[str] = []

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        """Send SIGTERM, wait for the end, and read the remaining output."""
        self._process.terminate()
        self._process.wait_ended()
        self.listen()

    def kill(self) -> None:
        if self._process.running:
            self._process.kill()

    @property
    def log(self) -> Path:
        """Path of the file that holds the program's output."""
        return self._process.log

    def listen(self) -> int:
        """Read the new output; return how many records the program has reported in total."""
        with self._process.log.open("rb") as log:
            log.seek(self._read_bytes)
            lines = log.read().rpartition(b"\n")[0]
        self._read_bytes += len(lines) + bool(lines)
        for line in lines.splitlines():
            try:
                found = self._parse(json.loads(line))
            except json.JSONDecodeError:
                found = None if line.startswith((b"[", b"OpenJDK", b"WARNING")) else line.decode()
            if isinstance(found, Reported):
                self.reported.append(found)
            elif found is not None:
                self.errors.append(f"{self.name}: {found}")
        return len(self.reported)

    def check(self) -> None:
        assert self._process.running, f"{self.name} has ended: {self._process.log_tail()}"


class Applications:
    """Applications of some or all clients. The context stops them when it ends."""

    def __init__(
        self,
        stack: Stack,
        bootstrap: str,
        clients: Sequence[str] = CLIENTS,
        *,
        within: Callable[[Sequence[str]], Sequence[str]] = tuple,
        topics_of: Callable[[str], list[str]] | None = None,
    ) -> None:
        """Take `within`, which wraps each program, and `topics_of`, which creates the two topics of a client."""
        self._stack = stack
        self._bootstrap = bootstrap
        self._within = within
        self._ca_file = str(stack.security.ca_file) if stack.security.with_tls else ""
        self.producers: list[Application] = []
        self.consumers: list[Application] = []
        self.topics: list[str] = []
        adding = {"java": self._java, "aiokafka": self._aiokafka, "go": self._go, "librdkafka": self._librdkafka}
        for client in clients:
            topics = topics_of(client) if topics_of else [new_topic(stack, client, kind, PARTITIONS) for kind in KINDS]
            self.topics += topics
            adding[client](topics)

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for one in (*self.consumers, *self.producers):
                started.callback(one.kill)
                one.start()
            self._ending = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def wait_for_more(self, more: int = 40) -> None:
        """Wait until every client has `count` more records acknowledged and read."""
        for one in (*self.producers, *self.consumers):
            self._wait(one, one.listen() + more)

    def finish(self) -> None:
        """Stop all applications and check their records."""
        for producer in self.producers:
            producer.stop()
        stored = {topic: list(self._stored(topic)) for topic in self.topics}
        for consumer in self.consumers:
            listened = {record.topic for record in consumer.reported}
            self._wait(consumer, sum(len(stored[topic]) for topic in listened))
            consumer.stop()
        errors = [error for one in (*self.producers, *self.consumers) for error in one.errors]
        assert not errors, errors[:10]
        for one in self.producers:
            self._judge_producer(one, stored)
        for one in self.consumers:
            assert {record.topic for record in one.reported} <= set(stored)
            for topic in {record.topic for record in one.reported}:
                assert by_partition(one.reported, topic) == by_partition(stored[topic], topic), f"{one.name}: {topic}"

    def _judge_producer(self, producer: Application, stored: dict[str, list[Reported]]) -> None:
        for topic in {record.topic for record in producer.reported}:
            for partition, records in by_partition(stored[topic], topic).items():
                numbers = [number for _, number in records]
                assert numbers == sorted(set(numbers)), f"{producer.name}: repeated or reordered in {partition}"
            where = {(record.partition, record.number): record.offset for record in stored[topic]}
            for record in producer.reported:
                if record.topic == topic:
                    assert (record.partition, record.number) in where, f"{producer.name}: {record} is lost"
                    assert record.offset in (-1, where[record.partition, record.number]), f"{producer.name}: {record}"

    def _stored(self, topic: str) -> Iterator[Reported]:
        """Yield the records that a reader in the last rack finds."""
        bootstrap = self._stack.bootstrap(self._stack.options.racks[-1])
        for partition, records in enumerate(read_partitions(bootstrap, topic, PARTITIONS, **tls_settings(self._stack))):
            for record in records:
                yield Reported(topic, partition, record.offset, int(record.value or b"-1"))

    def _wait(self, one: Application, count: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (now := one.listen()) < count:
            one.check()
            assert time.monotonic() < deadline, f"{one.name}: {count - now} of {count} records are missing {one.errors}"
            time.sleep(0.05)

    def _add(self, to: list[Application], name: str, command: Sequence[str], parse: Callable[..., object]) -> None:
        log = self._stack.directory / "logs" / f"{name}-{len(self.topics)}-{time.monotonic_ns()}.log"
        to.append(Application(name, self._within(command), log, parse))

    def _java(self, topics: list[str]) -> None:
        configs = self._stack.directory / "config" / "application.properties"
        tls = self._stack.security.java_properties(ADMIN) if self._ca_file else None
        secured = tls.read_text() if tls else ""
        configs.write_text(secured + "".join(f"{name}={value}\n" for name, value in JAVA_PRODUCER.items()))
        for topic in topics:
            shared = ("--bootstrap-server", self._bootstrap, "--topic", topic)
            producing = (*shared, "--throughput", str(RATE), "--acks", "-1", "--command-config", str(configs))
            command = self._stack.java_command(f"{TOOLS}.VerifiableProducer", *producing)
            self._add(self.producers, f"java-producer-{topic}", command, java_acknowledged)
            readers = f"{topic}-readers"
            reading: tuple[str, ...] = (*shared, "--group-id", readers, "--reset-policy", "earliest", "--verbose")
            reading += ("--command-config", str(tls)) if tls else ()
            command = self._stack.java_command(f"{TOOLS}.VerifiableConsumer", *reading)
            self._add(self.consumers, f"java-consumer-{topic}", command, java_read)

    def _aiokafka(self, topics: list[str]) -> None:
        for to, role in ((self.producers, "produce"), (self.consumers, "consume")):
            command = [sys.executable, aiokafka_load.__file__, role, self._bootstrap, self._ca_file, *topics]
            self._add(to, f"aiokafka-{role}", command, json_reported)

    def _librdkafka(self, topics: list[str]) -> None:
        for to, role in ((self.producers, "produce"), (self.consumers, "consume")):
            command = [sys.executable, confluent_load.__file__, role, self._bootstrap, self._ca_file, *topics]
            self._add(to, f"librdkafka-{role}", command, json_reported)

    def _go(self, topics: list[str]) -> None:
        program = str(GO_CLIENT.resolve())
        shared = ("-bootstrap", self._bootstrap, *(("-tls", "-tls-ca", self._ca_file) if self._ca_file else ()))
        for topic in topics:
            load = ("-rate", str(RATE), "-partitions", str(PARTITIONS))
            command = [program, "produce", *shared, "-topic", topic, *load]
            self._add(self.producers, f"go-producer-{topic}", command, json_reported)
        command = [program, "consume", *shared, "-topic", ",".join(topics), "-numbers"]
        self._add(self.consumers, "go-consumer", command, json_reported)


def by_partition(records: Sequence[Reported], topic: str) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, number) of one topic's records, in their order."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        if record.topic == topic:
            found[record.partition].append((record.offset, record.number))
    return dict(found)


def json_reported(event: dict[str, Any]) -> object:
    """Parse the output of aiokafka_load and of the Go program."""
    if event["event"] == "error":
        return event
    if event["event"] in ("acked", "record", "number"):
        return Reported(event["topic"], event["partition"], event["offset"], event["number"])
    return None


def java_acknowledged(event: dict[str, Any]) -> object:
    """Parse the output of VerifiableProducer."""
    if event["name"] == "producer_send_error":
        return event
    if event["name"] == "producer_send_success":
        return Reported(event["topic"], event["partition"], event["offset"], int(event["value"]))
    return None


def java_read(event: dict[str, Any]) -> object:
    """Parse the output of VerifiableConsumer."""
    if event["name"] == "record_data":
        return Reported(event["topic"], event["partition"], event["offset"], int(event["value"]))
    if event["name"] == "offsets_committed" and not event["success"]:
        return event
    return None
