"""Work in shifts: each shift begins with new topics, and ends with a check of all records and the topics' deletion.

So the run's own data does not pile up, while topics, producers, connections and processes come and go.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException

from proxy.demo.stack import Stack
from tests.pipeline_under_load.books import Keeps
from tests.pipeline_under_load.jobs import Jobs, run_job
from tests.pipeline_under_load.kafka_reader import read_topic
from tests.pipeline_under_load.writers import Topic, Writer
from tests.retention_under_load.books import Problems
from tests.soak.errands import delete
from tests.support.applications import Applications
from tests.support.topics import DISKLESS, new_topic
from tests.support.worker import Worker

LISTEN_SECONDS = 2.0
ATTEMPTS = 5
BEGIN_SECONDS = 60.0
WRITER_TICK_SECONDS = 1.0
PLANS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("merge", ("--target-bytes", "4MiB", "--min-age", "30s", "--min-inputs", "4", "--max-age", "2m")),
    ("compact", ("--force",)),
    ("audit", ()),
    ("traffic", ("--from", "2h")),
)
"""Jobs of a pipeline shift, in this order, one at a time."""
PIPELINE_TOPICS = (
    (Keeps.ALL, 3, 2, {"retention.ms": "-1"}),
    (Keeps.THE_LAST_OF_EACH_KEY, 2, 2, {"cleanup.policy": "compact"}),
)
"""Partitions, producers and configs of the topics."""


class Shifts(Worker):
    """Runs shift after shift; the last one ends early, with its check."""

    def __init__(self, name: str, calm: threading.Lock, problems: Problems) -> None:
        """Hold `calm` while a shift begins.

        Suppose that an idempotent producer's first batch for a partition is on its way while the leader moves. Then its
        second batch may be stored first: brokers accept any sequence of a producer that the new leader does not know.
        They then reject the first batch until it expires (decision 0008). A diskless topic requires the first batch
        first.
        """
        super().__init__(name, problems.report)
        self.done = 0
        self._name, self._calm, self._problems = name, calm, problems

    def work(self) -> None:
        """Run shift after shift."""
        while not self.ended.is_set():
            try:
                self.shift(self.done)
            except Exception as error:
                self._problems.report(f"{self._name}: {error!r}")
                self.ended.wait(LISTEN_SECONDS)
            self.done += 1

    def shift(self, number: int) -> None:
        """Run one shift."""
        raise NotImplementedError

    def _insist(self, make: Callable[[], object]) -> object:
        for _ in range(ATTEMPTS - 1):
            try:
                return make()
            except (KafkaException, TimeoutError):
                time.sleep(LISTEN_SECONDS)
        return make()


class ApplicationShifts(Shifts):
    """Run unmodified clients as applications: idempotent producers and their readers, of one library at a time."""

    def __init__(
        self,
        stack: Stack,
        clients: Sequence[str],
        seed: int,
        calm: threading.Lock,
        problems: Problems,
        seconds: float,
    ) -> None:
        super().__init__("applications", calm, problems)
        self.records: Counter[str] = Counter()
        """Acknowledged records, by client."""
        self._stack, self._clients, self._seconds = stack, clients, seconds
        self._chance = random.Random(seed)

    def shift(self, number: int) -> None:
        """Run a shift of the next client."""
        stack, client = self._stack, self._clients[number % len(self._clients)]
        racks = self._chance.sample(list(stack.options.racks), len(stack.options.racks))
        bootstrap = ",".join(stack.bootstrap(rack) for rack in racks)
        with ExitStack() as running:
            with self._calm:
                made = self._insist(lambda: Applications(stack, bootstrap, (client,)))
                assert isinstance(made, Applications)
                applications = running.enter_context(made)
                applications.wait_for_more()
            end = time.monotonic() + self._seconds
            while time.monotonic() < end and not self.ended.wait(LISTEN_SECONDS):
                for one in (*applications.producers, *applications.consumers):
                    one.listen()
                    one.check()
            applications.finish()
        self.records[client] += sum(len(one.reported) for one in applications.producers)
        for one in (*applications.producers, *applications.consumers):
            one.log.unlink(missing_ok=True)
        for topic in applications.topics:
            delete(bootstrap, topic)


class PipelineShifts(Shifts):
    """Write topics that keep everything and compacted ones all the time, while the jobs run one after the other."""

    def __init__(
        self, stack: Stack, config: Path, seed: int, calm: threading.Lock, problems: Problems, pause_seconds: float
    ) -> None:
        """Run jobs with the settings file `config`, and wait `pause_seconds` before each job."""
        super().__init__("pipeline", calm, problems)
        self.acknowledged = self.read = 0
        self.jobs: Counter[str] = Counter()
        self.audit: dict[str, object] = {}
        """Figures of the last audit."""
        self._stack, self._config, self._pause_seconds = stack, config, pause_seconds
        self._chance = random.Random(seed)
        self._id = os.urandom(8)
        self._number = -1

    def shift(self, number: int) -> None:
        """Run all jobs once; the current one is the last if the run ends."""
        bootstraps = [self._stack.bootstrap(rack) for rack in self._stack.options.racks]
        bootstrap = ",".join(bootstraps)
        topics: list[Topic] = []
        writers: list[Writer] = []
        with self._calm:
            for keeps, partitions, producers, configs in PIPELINE_TOPICS:
                name = self._insist(
                    lambda partitions=partitions, configs=configs: new_topic(  # type: ignore[misc]
                        self._stack, "pipeline", DISKLESS, partitions, configs=configs
                    )
                )
                topics.append(Topic.of(str(name), keeps, partitions))
                for _ in range(producers):
                    # Each shift uses the same racks, because a shift is longer than the window of a floor.
                    own = bootstraps[len(writers) % len(bootstraps)]
                    # odd numbers are idempotent producers; the others give up when a proxy is restarted
                    self._number += 2
                    writers.append(Writer(self._id, self._number, topics[-1], own, WRITER_TICK_SECONDS))
            deadline = time.monotonic() + BEGIN_SECONDS
            while not all(writer.acknowledged for writer in writers) and time.monotonic() < deadline:
                time.sleep(0.1)
        for name, arguments in PLANS:
            if self.ended.wait(self._pause_seconds):
                break
            self.run_job(name, arguments)
        for writer in writers:
            writer.finish()
            self.acknowledged += writer.acknowledged
            for failure in writer.failed:
                self._problems.report(failure)
        for topic in topics:
            self._judge(bootstrap, topic)
            delete(bootstrap, topic.name)

    def run_job(self, name: str, arguments: Sequence[str] = ()) -> None:
        """Run one job to its end; its findings are problems."""
        judge = Jobs(self._config, PLANS, seed=0, kill_share=0.0, kill_within_seconds=0.0)
        ended = run_job(self._config, name, arguments, None, 0.0)
        judge.judge(ended)
        self.jobs[name] += 1
        for problem in judge.problems:
            self._problems.report(problem)
        if name == "audit" and ended.report is not None:
            self.audit = ended.report["figures"]

    def _judge(self, bootstrap: str, topic: Topic) -> None:
        read = read_topic(self._id, bootstrap, topic.name, len(topic.partitions))
        for number, books in enumerate(topic.partitions):
            self.read += len(read[number])
            for problem in books.problems(read[number]):
                self._problems.report(f"{topic.name}-{number}: {problem}")
