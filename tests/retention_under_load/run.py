"""One run: topics, their producers and readers, kills and deletions, and the final checks."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import redis
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from proxy.config import load_settings
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.demo.stack import Stack
from proxy.housekeeping.housekeeper import LEASE
from proxy.inspection.stores import open_registry
from tests.retention_under_load.books import KINDS, PARTITIONS, Kind, Life, Problems
from tests.retention_under_load.bucket import Bucket
from tests.retention_under_load.clients import Reader, Sender
from tests.support.topics import replica_count

SETTINGS = {
    "garbage": {"interval_ms": 500, "grace_ms": 3_000, "orphan_sweep_interval_ms": 2_000, "orphan_age_ms": 15_000},
    "log.retention.check.interval.ms": 500,
}
"""Settings of the proxies: housekeeping that can be watched."""
LOOK_SECONDS = 1.0
AWAY_SECONDS = 3.0
"""Seconds that a killed proxy stays away."""
CREATE_SECONDS = 90.0
SETTLE_SECONDS = 90.0
FIRST_DELETION_SECONDS, LAST_DELETION_SECONDS = 6.0, 15.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seconds: float
    seed: int
    kill_every_seconds: float = 20.0
    reading_racks: tuple[str, ...] = ("rack-a", "rack-b")


@dataclass
class Report:
    """Results of the run."""

    seed: int
    seconds: float = 0.0
    acknowledged: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Records read, by rack."""
    overtaken: int = 0
    """Times that a reader got OFFSET_OUT_OF_RANGE for a good reason."""
    skipped: int = 0
    """Records that a reader never saw, because they were deleted earlier."""
    records_deletions: int = 0
    topics_made: int = 0
    proxies_killed: int = 0
    bytes: dict[str, Any] = field(default_factory=dict)
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)


class _Topic:
    """A topic name, and its current life."""

    def __init__(self, run: Run, kind: Kind) -> None:
        self._run = run
        self.kind = kind
        self.name = f"retention-{kind.label}-{run.id.hex()[:6]}"
        self.life: Life | None = None
        self._sender: Sender | None = None
        self._readers: list[Reader] = []

    def begin(self) -> None:
        """Create the topic, and start to write and read it."""
        run = self._run
        run.create(self.name, self.kind)
        run.report.topics_made += 1
        self.life = Life(run.id, self.name, self.kind, run.report.topics_made)
        racks = list(run.stack.options.racks)
        self._sender = Sender(self.life, run.stack.bootstrap(run.chance.choice(racks)), run.problems)
        self._readers = [
            Reader(self.life, rack, run.stack.bootstrap(rack), run.problems) for rack in run.options.reading_racks
        ]

    def end(self) -> None:
        """Delete the topic while it is read and others are written."""
        assert self.life is not None
        assert self._sender is not None
        self.life.ending.set()
        self._sender.finish()  # first: a producer that requests a deleted topic creates a classic one of its name
        self._run.delete(self.name)
        self.finish()

    def finish(self) -> None:
        """Read all acknowledged records, except those that may be missing."""
        if self.life is None or self._sender is None:
            return
        report = self._run.report
        self._sender.finish()
        for reader in self._readers:
            reader.finish()
        report.acknowledged += sum(books.acknowledged for books in self.life.partitions)
        for rack, reader in zip(self._run.options.reading_racks, self._readers, strict=True):
            report.read[rack] = report.read.get(rack, 0) + reader.records
            report.overtaken += reader.out_of_range
            report.skipped += reader.skipped
        self._sender, self._readers = None, []


class Run:
    """The run's main thread; slow steps run in a second thread."""

    def __init__(self, stack: Stack, options: RunOptions, progress: Callable[[str], None]) -> None:
        self.stack = stack
        self.options = options
        self.chance = random.Random(options.seed)
        self.id = os.urandom(8)
        self.problems = Problems()
        self.report = Report(options.seed)
        self._progress = progress
        self._settings = load_settings(stack.config_path(stack.options.racks[0]))
        self._bucket = Bucket(self._settings, self.problems, len(stack.proxies))
        self._topics = [_Topic(self, kind) for kind in KINDS]
        self._worker = ThreadPoolExecutor(1, "administrator")
        self._store = redis.Redis.from_url(stack.redis.url)
        self._away: dict[str, float] = {}
        """Killed proxies, with the time at which each comes back."""

    def run(self) -> Report:
        """Run all of it. Raises StackError if the stack breaks."""
        began_s = time.monotonic()
        try:
            for topic in self._topics:
                topic.begin()
            self._run_for(self.options.seconds)
            self._bring_back(at_once=True)
            self._finish()
            self._give_all_back()
        finally:
            self._worker.shutdown()
            self._store.close()
            self._bucket.close()
        report, figures = self.report, self._bucket.figures
        report.seconds = time.monotonic() - began_s
        looks = max(figures.looks, 1)
        report.bytes = {
            **{f"mean_{name}": getattr(figures, name) // looks for name in ("live", "used", "bucket")},
            **{name: value for name, value in asdict(figures).items() if name not in ("live", "used", "bucket")},
            "allowed_dead_seconds": self._bucket.allowance.dead,
            "allowed_young_seconds": self._bucket.allowance.young,
        }
        report.problem_count, report.problems = self.problems.count, self.problems.reports
        return report

    def _run_for(self, seconds: float) -> None:
        now = began_s = time.monotonic()
        next_kill_s = began_s + min(self.options.kill_every_seconds, seconds / 2)
        deleted = next(topic for topic in self._topics if topic.kind.is_deleted)
        next_deletion_s = began_s + FIRST_DELETION_SECONDS
        task: Future[None] | None = None
        while (now := time.monotonic()) < began_s + seconds:
            self._bucket.look()
            if now >= next_kill_s:
                self._kill_holder()
                next_kill_s += self.options.kill_every_seconds
            self._bring_back()
            if task is None or task.done():
                if task is not None:
                    task.result()
                if now >= next_deletion_s:
                    next_deletion_s = now + self.chance.uniform(FIRST_DELETION_SECONDS, LAST_DELETION_SECONDS)
                    task = self._worker.submit(self._renew, deleted)
                else:
                    task = self._worker.submit(self._delete_records)
            self._progress(f"{now - began_s:.0f} of {seconds:.0f} s, {self.problems.count} problems")
            time.sleep(max(0.0, LOOK_SECONDS - (time.monotonic() - now)))
        if task is not None:
            self._look_until(task)

    def _look_until(self, task: Future[None]) -> None:
        while not task.done():
            self._bucket.look()
            self._bring_back()
            time.sleep(LOOK_SECONDS)
        task.result()

    @staticmethod
    def _renew(topic: _Topic) -> None:
        topic.end()
        topic.begin()

    def _finish(self) -> None:
        def finish() -> None:
            for topic in self._topics:
                topic.finish()

        self._look_until(self._worker.submit(finish))

    def _give_all_back(self) -> None:
        """Delete the topics; after that, none of the run's data may be left in the bucket."""

        def delete() -> None:
            for topic in self._topics:
                self.delete(topic.name)

        self._look_until(self._worker.submit(delete))
        deadline = time.monotonic() + self._bucket.allowance.dead + SETTLE_SECONDS
        while self._bucket.dying() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            self._bucket.look()
        if left := self._bucket.dying():
            self.problems.report(f"bucket: {len(left)} objects of deleted topics stay")

    # Kills and restarts of the fleet.

    def _kill_holder(self) -> None:
        """Kill the proxy that holds the housekeeping lease."""
        holder = self._store.get(f"diskless:{{registry}}:fleet:lease:{LEASE}")
        if not isinstance(holder, bytes):
            return
        name = holder.decode().partition("/")[0]
        if name not in self._away:
            self.stack.kill_proxy(name)
            self._bucket.proxy_was_killed()
            self.report.proxies_killed += 1
            self._away[name] = time.monotonic() + AWAY_SECONDS

    def _bring_back(self, *, at_once: bool = False) -> None:
        for name, due_s in list(self._away.items()):
            if at_once or time.monotonic() >= due_s:
                del self._away[name]
                self.stack.start_proxy(name, wait=at_once)

    # Actions of an administrator, repeated until they succeed.

    def create(self, name: str, kind: Kind) -> None:
        """Create a new topic; one that an earlier try has created counts as success."""
        configs = {**kind.configs, "diskless.enable": "true"}
        topic = NewTopic(name, PARTITIONS, replica_count(self.stack), config=configs)
        ambiguous = False

        def attempt(admin: AdminClient) -> bool:
            nonlocal ambiguous
            try:
                admin.create_topics([topic], request_timeout=10)[name].result(15)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    entry = self._entry(name)
                    if ambiguous and entry is not None and entry.state == "live":
                        return True
                else:
                    ambiguous = True
                raise
            return True

        self._insist(attempt, f"{name} can't be created")

    def delete(self, name: str) -> None:
        """Delete a topic; an unknown topic counts as success."""

        def attempt(admin: AdminClient) -> bool:
            try:
                admin.delete_topics([name], request_timeout=10)[name].result(15)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                return self._entry(name) is None
            return True

        self._insist(attempt, f"{name} can't be deleted")

    def _delete_records(self) -> None:
        (topic,) = [one for one in self._topics if one.kind.on_request]
        assert topic.life is not None
        partition = self.chance.randrange(PARTITIONS)
        books = topic.life.partitions[partition]
        before = self.chance.randint(books.delete_before, books.acknowledged)
        books.delete_before = before  # it may be carried out even if the answer is lost

        def attempt(admin: AdminClient) -> bool:
            asked = TopicPartition(topic.name, partition, before)
            (answer,) = admin.delete_records([asked], request_timeout=10).values()
            found = answer.result(15).low_watermark
            if found != before:
                self.problems.report(f"{topic.life}: DeleteRecords before {before} answered {found}")
            return True

        self._insist(attempt, f"records of {topic.name} can't be deleted")
        self.report.records_deletions += 1

    def _insist(self, attempt: Callable[[AdminClient], bool], complaint: str) -> None:
        """Repeat through one rack after the other, until it succeeds."""
        deadline = time.monotonic() + CREATE_SECONDS
        errors: dict[str, int] = {}
        while time.monotonic() < deadline:
            rack = self.chance.choice(self.stack.options.racks)
            try:
                if attempt(AdminClient({"bootstrap.servers": self.stack.bootstrap(rack), "log_level": 2})):
                    return
            except (KafkaException, TimeoutError) as error:
                errors[repr(error)] = errors.get(repr(error), 0) + 1
            threading.Event().wait(0.2)
        self.problems.report(f"{complaint} within {CREATE_SECONDS:g} s: {errors}")

    def _entry(self, name: str) -> DisklessTopic | None:
        """Return a topic's entry in the registry."""
        topics = asyncio.run(open_registry(self._settings))
        return next((topic for topic in topics if topic.name == name), None)


def retention_under_load(stack: Stack, options: RunOptions, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Run it on a stack with file storage."""
    return Run(stack, options, progress).run()
