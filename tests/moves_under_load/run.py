"""One run: topics, their producers and readers, the moves, and the final checks."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from proxy.demo.stack import Stack
from tests.moves_under_load.books import MAX_PARTITIONS, Life, ReaderBooks, compare
from tests.moves_under_load.cluster import NotSettled
from tests.moves_under_load.moves import Moves
from tests.moves_under_load.writer import Writer
from tests.retention_under_load.books import Problems
from tests.retention_under_load.clients import TICK_SECONDS
from tests.support.applications import Application
from tests.support.java_tools import compile_java, java_command
from tests.support.metrics import Metrics

JAVA = "java"
JAVA_SOURCE = Path(__file__).with_name("TopicReader.java")
RACK_KINDS = ("java+rack", "librdkafka+rack")
"""Kinds of readers that can name their rack; here they do."""
KINDS = (JAVA, "librdkafka", "aiokafka", "fetch-v4", "fetch-v10")
REPLICAS = 3
RENEWED_PARTITIONS = 3
ADMIN_SECONDS = 90.0
READ_SECONDS = 90.0
BEHIND_SECONDS = 1.3
LONG = 20
"""Records of a partition before its deletion: more than the first records of the next life."""
PAUSE_SECONDS = 0.5
"""Seconds between moves."""
WAYS = ("directly", "through a proxy")
"""Topics that are written in turns."""
BROKER_PROPERTIES = {
    "auto.create.topics.enable": "false",  # a client that asks for a topic while it is recreated must not create one
    "replica.lag.time.max.ms": "2500",
    "leader.imbalance.check.interval.seconds": "3600",
}
"""Broker properties that a run needs: a follower that hangs leaves the ISR before its session ends."""
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
"""Broker properties that redirect clients that name their rack (KIP-392)."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seconds: float
    seed: int
    kinds: tuple[str, ...] = KINDS
    partitions: int = 12
    reading_racks: int = 1
    """Number of racks with a reader of each kind, besides the one at the brokers."""
    moves: tuple[str, ...] = ()
    """Moves to use; empty means all. Each comes at least once, in any order, and then again until the time is over."""


@dataclass
class Report:
    """Results of the run."""

    seed: int
    seconds: float = 0.0
    written: int = 0
    twice: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    """Records in the log more than once, and records that producers gave up, by route."""
    read: dict[str, int] = field(default_factory=dict)
    """Records read, by reader."""
    latency_ms: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """Latency from the sending of a record to its reading, by reader: median, 99th percentile, maximum."""
    moves: dict[str, int] = field(default_factory=dict)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    """Errors that readers got, by kind."""
    expected_resets: dict[str, int] = field(default_factory=dict)
    resets: dict[str, int] = field(default_factory=dict)
    """Out-of-range offsets, by reader: of recreated topics, and others."""
    fetched_bytes: dict[str, int] = field(default_factory=dict)
    """Classic records according to the proxies: from the client's rack (`near`) and from others (`far`)."""
    leader_reads: dict[str, int] = field(default_factory=dict)
    """Reads from a leader of another rack, by reason."""
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)


class Reader:
    """A client's program, and the books of its output."""

    def __init__(self, run: Run, kind: str, rack: str) -> None:
        """Read as a client of `rack`; empty for a reader at the brokers."""
        stack = run.stack
        self.kind = kind
        self.is_direct = not rack
        self.books = ReaderBooks(f"{kind} {'of ' + rack if rack else 'at the brokers'}", run.lives, run.problems)
        bootstrap = stack.bootstrap(rack) if rack else stack.direct_bootstrap
        client, _, with_rack = kind.partition("+")
        client_rack = (rack or stack.options.racks[0]) if with_rack else ""
        arguments = [run.id.hex(), bootstrap, client_rack, *run.lives]
        if client == JAVA:
            command = java_command(run.classes, JAVA_SOURCE.stem, *arguments)
        else:
            command = [sys.executable, "-m", "tests.moves_under_load.reader", client, *arguments]
        name = f"reader-{kind}-{rack or 'direct'}"
        self.program = Application(name, command, stack.directory / "logs" / f"{name}.log", self.books.take)


class Run:
    """The run's single thread. Producers have their own threads, and readers are processes."""

    def __init__(self, stack: Stack, options: RunOptions, progress: Callable[[str], None]) -> None:
        self.stack = stack
        self.options = options
        self.problems = Problems()
        self.report = Report(options.seed)
        self.id = os.urandom(8)
        self.lives: dict[str, list[Life]] = {}
        self.classes = stack.directory / "tmp"
        """Directory for the compiled Java client."""
        self._chance = random.Random(options.seed)
        self._progress = progress
        self._life_count = 0
        label = self.id.hex()[:6]
        self._moving, self._renewed = f"moving-{label}", f"renewed-{label}"
        self._writers: list[Writer] = []
        self._readers: list[Reader] = []
        self._counted: Counter[tuple[str, str]] = Counter()
        self._moves = Moves(stack, lambda: list(self.lives), self._chance, self._count)

    def run(self) -> Report:
        """Run all of it. Raises StackError or NotSettled if the stack breaks."""
        began_s = time.monotonic()
        first = [self._begin(self._moving, self.options.partitions), self._begin(self._renewed, RENEWED_PARTITIONS)]
        if any(kind.startswith(JAVA) for kind in self.options.kinds):
            compile_java([JAVA_SOURCE], self.classes)
        racks = list(self.stack.options.racks)
        for place, kind in enumerate(self.options.kinds):
            of_kind = [racks[(place + more) % len(racks)] for more in range(self.options.reading_racks)]
            self._readers += [Reader(self, kind, rack) for rack in ("", *of_kind)]
        try:
            for reader in self._readers:
                reader.program.start()
            for life in first:
                self._write(life, range(len(life.partitions)))
            self._wait(
                lambda: all(reader.books.position(life, 0) for reader in self._readers for life in first),
                "not every reader gets records at all",
            )
            self._move(self.options.seconds)
            self._finish()
        finally:
            for writer in self._writers:
                writer.life.ending.set()  # its unsent records do not matter
                writer.finish()
            for reader in self._readers:
                reader.program.kill()
        self.report.seconds = time.monotonic() - began_s
        self._sum_up()
        return self.report

    def _sum_up(self) -> None:
        report = self.report
        for life in (life for lives in self.lives.values() for life in lives):
            for partition, books in enumerate(life.partitions):
                report.written += len(books.acknowledged)
                report.twice[WAYS[partition % len(WAYS)]] += books.twice()
                report.failed[WAYS[partition % len(WAYS)]] += books.failed
        report.moves = dict(sorted(self._moves.done.items()))
        for reader in self._readers:
            books = reader.books
            report.read[books.name] = books.records
            latencies = sorted(books.latencies_ms) or [0.0]
            places = (0.5, 0.99, 1.0)
            report.latency_ms[books.name] = tuple(
                latencies[min(int(len(latencies) * at), len(latencies) - 1)] for at in places
            )
            report.errors[books.name] = dict(books.errors)
            report.expected_resets[books.name] = books.expected_resets
            report.resets[books.name] = books.resets.total()
        for (name, label), value in sorted(self._counted.items()):
            (report.fetched_bytes if name == "bytes" else report.leader_reads)[label] = int(value)
        report.problem_count, report.problems = self.problems.count, self.problems.reports

    # Topics and their producers.

    def _begin(self, name: str, partitions: int) -> Life:
        self._insist(
            lambda admin: admin.create_topics([NewTopic(name, partitions, REPLICAS)], request_timeout=10)[name],
            KafkaError.TOPIC_ALREADY_EXISTS,
        )
        self._life_count += 1
        life = Life(self.id, name, self._life_count, partitions)
        self.lives.setdefault(name, []).append(life)
        return life

    def _write(self, life: Life, partitions: Sequence[int]) -> None:
        """Start producers: half of the partitions directly, the others through the proxies."""
        through = self.stack.bootstrap(self._chance.choice(self.stack.options.racks))
        for way, bootstrap in enumerate((self.stack.direct_bootstrap, through)):
            if mine := [partition for partition in partitions if partition % len(WAYS) == way]:
                self._writers.append(Writer(life, bootstrap, self.problems, mine, records_per_tick=1))

    def _stop_writing(self, life: Life) -> None:
        """Stop producers; wait until all records are acknowledged and all readers have them."""
        mine = [writer for writer in self._writers if writer.life is life]
        for writer in mine:
            writer.finish()
            self._writers.remove(writer)
        self._wait_read(life)
        for complaint in life.wrong():
            self.problems.report(complaint)

    def _grow(self) -> None:
        """Add partitions to the moving topic; readers read these from their beginning."""
        life = self.lives[self._moving][-1]
        before = len(life.partitions)
        after = min(before + self._chance.randint(1, 2), MAX_PARTITIONS)
        asked = [NewPartitions(self._moving, after)]
        self._insist(
            lambda admin: admin.create_partitions(asked, request_timeout=10)[self._moving],
            KafkaError.INVALID_PARTITIONS,  # from an attempt whose answer was lost
        )
        life.grow(after)
        self._write(life, range(before, after))

    def _renew(self, frozen_seconds: float = 0.0) -> None:
        """Delete a topic that is being read, and recreate it; a broker may learn of it late.

        A reader without topic IDs continues at its old offset and finds it out of range while the new log is shorter.
        The new log stays short until all readers have noticed; otherwise their results would depend on the moment.
        """
        name = self._renewed
        life = self.lives[name][-1]
        self._wait(
            lambda: min(reader.books.position(life, index) for reader in self._readers for index in range(2)) > LONG,
            f"readers do not get {LONG} records of {life}",
        )
        self._stop_writing(life)
        life.ending.set()
        if frozen_seconds:
            self._moves.freeze_for(frozen_seconds)
        self._insist(
            lambda admin: admin.delete_topics([name], request_timeout=10)[name], KafkaError.UNKNOWN_TOPIC_OR_PART
        )
        new_life = self._begin(name, RENEWED_PARTITIONS)
        while not all(books.end for books in new_life.partitions):
            self._write(new_life, range(RENEWED_PARTITIONS))
            time.sleep(TICK_SECONDS / 2)
            for writer in self._writers[-2:]:
                writer.finish()
            del self._writers[-2:]
        self._wait_read(new_life)
        self._write(new_life, range(RENEWED_PARTITIONS))

    def _insist(self, attempt: Callable[[AdminClient], Future[Any]], done: int) -> None:
        """Repeat, directly or through a rack's proxy, until it succeeds or the error says that it has succeeded."""
        ways = [self.stack.direct_bootstrap, *map(self.stack.bootstrap, self.stack.options.racks)]
        errors: Counter[str] = Counter()
        deadline = time.monotonic() + ADMIN_SECONDS
        while time.monotonic() < deadline:
            client = AdminClient({"bootstrap.servers": self._chance.choice(ways), "log_level": 2})
            try:
                attempt(client).result(15)
                return
            except (KafkaException, TimeoutError) as error:
                if isinstance(error, KafkaException) and error.args[0].code() == done:
                    return
                errors[repr(error)] += 1
            time.sleep(0.2)
        raise NotSettled(f"an administrator's request is not done after {ADMIN_SECONDS:g} s: {errors}")

    # The moves, and the checks that readers follow.

    def _move(self, seconds: float) -> None:
        moves = {
            **self._moves.all(),
            "grow": self._grow,
            "renew": self._renew,
            "renew behind a broker": lambda: self._renew(BEHIND_SECONDS),
        }
        names = sorted(self.options.moves or moves)
        deck: list[str] = []
        began_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + seconds or self._moves.done.total() < len(names):
            if not deck:
                deck = self._chance.sample(names, len(names))
            name = deck.pop()
            self._progress(f"{now_s - began_s:.0f} of {seconds:.0f} s, {self.problems.count} problems; {name}")
            self._moves.do(name, moves[name])
            self._listen()
            time.sleep(PAUSE_SECONDS)

    def _finish(self) -> None:
        for lives in self.lives.values():
            self._stop_writing(lives[-1])
        for rack in self.stack.proxies:
            self._count(rack)
        for reader in self._readers:
            reader.program.stop()
            if reader.is_direct and reader.program.errors:
                # What brokers did to their own reader (a truncation, when a topic was recreated) is not our fault.
                self._progress(f"{reader.books.name} complained: {reader.program.errors[0]}")
                continue
            for error in reader.program.errors:
                self.problems.report(f"{reader.books.name} failed: {error}")
        direct = {reader.kind: reader.books for reader in self._readers if reader.is_direct}
        for reader in self._readers:
            if not reader.is_direct:
                compare(reader.books, direct[reader.kind], self.problems)

    def _listen(self) -> None:
        for reader in self._readers:
            reader.program.listen()
            reader.program.check()

    def _wait(self, is_so: Callable[[], bool], complaint: str) -> bool:
        deadline = time.monotonic() + READ_SECONDS
        while True:
            self._listen()
            if is_so():
                return True
            if time.monotonic() > deadline:
                self.problems.report(complaint)
                return False
            time.sleep(0.1)

    def _wait_read(self, life: Life) -> None:
        """Wait until every reader has all acknowledged records; records that are still missing then are a problem."""
        deadline = time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline:
            self._listen()
            if not any(reader.books.behind(life) for reader in self._readers):
                return
            time.sleep(0.1)
        for reader in self._readers:
            for partition, (has, of) in reader.books.behind(life).items():
                self.problems.report(
                    f"{reader.books.name} has {has} of {of} records of partition {partition} of {life} after "
                    f"{READ_SECONDS:g} s"
                )

    def _count(self, name: str) -> None:
        """Add up a proxy's counters, which end with the proxy."""
        metrics = Metrics(self.stack, name)
        for sample in metrics.samples("diskless_proxy_record_bytes_total", kind="classic", direction="fetch"):
            near = sample.labels["client_rack"] == sample.labels["serving_rack"]
            self._counted["bytes", "near" if near else "far"] += int(sample.value)
        for sample in metrics.samples("diskless_proxy_leader_reads_total"):
            if sample.value:
                self._counted["reads", sample.labels["reason"]] += int(sample.value)


def moves_under_load(stack: Stack, options: RunOptions, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Run it on a stack with BROKER_PROPERTIES and at least three brokers."""
    return Run(stack, options, progress).run()
