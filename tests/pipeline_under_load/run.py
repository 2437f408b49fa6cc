"""The run: topics, producers and jobs; at the end, everything is read in three ways."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.demo.stack import Stack
from tests.pipeline_under_load.asked import SOURCES, Answer, Asked
from tests.pipeline_under_load.books import Keeps, Read
from tests.pipeline_under_load.jobs import ROOT, Ended, Jobs
from tests.pipeline_under_load.kafka_reader import log_start, read_topic
from tests.pipeline_under_load.writers import Topic, Writer
from tests.support.topics import DISKLESS, new_topic

SETTINGS = {
    "garbage": {"interval_ms": 500, "grace_ms": 3_000, "orphan_sweep_interval_ms": 2_000, "orphan_age_ms": 120_000},
    "log.retention.check.interval.ms": 500,
    "redis": {"pack_age_ms": 5_000, "pack_interval_ms": 1_000},
}
MERGE = ("--target-bytes", "256KiB", "--min-age", "2s", "--min-inputs", "2", "--max-age", "20s")
COMPACT = ("--force",)
SPARK_SECONDS = 600.0
KINDS = (
    (Keeps.ALL, 3, 5, {}),
    (Keeps.THE_NEWEST, 2, 2, {"retention.bytes": "400000"}),
    (Keeps.THE_LAST_OF_EACH_KEY, 2, 2, {"cleanup.policy": "compact"}),
)
"""Partitions, producers and configs of the topics."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run."""

    seconds: float
    seed: int
    kill_share: float = 0.6
    """Share of the jobs of which a part is killed."""
    kill_within_seconds: float = 14.0
    """Maximum seconds between a job's start and its kill."""
    compact: bool = True


@dataclass
class Report:
    """Results of the run."""

    seed: int
    seconds: float = 0.0
    acknowledged: int = 0
    read: dict[str, int] = field(default_factory=dict)
    """Records read, by reader."""
    compacted_away: int = 0
    """Records of the compacted topic that compaction removed."""
    forgotten: int = 0
    """Records that retention deleted."""
    done: dict[str, int] = field(default_factory=dict)
    """Jobs that ran to their end."""
    killed: dict[str, int] = field(default_factory=dict)
    """Killed jobs, by the killed part."""
    audit: dict[str, Any] = field(default_factory=dict)
    """Figures of the last audit."""
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)


class Run:
    """A run on one stack."""

    def __init__(self, stack: Stack, options: RunOptions, progress: Callable[[str], None]) -> None:
        self._stack, self._options, self._progress = stack, options, progress
        self._id = os.urandom(8)
        self._racks = list(stack.options.racks)
        self._config: Path = stack.config_path(self._racks[0])
        self._topics: list[Topic] = []
        self._report = Report(options.seed)

    def run(self) -> Report:
        """Run all of it."""
        began = time.monotonic()
        writers = self._begin()
        plans: list[tuple[str, tuple[str, ...]]] = [("merge", MERGE), ("audit", ())]
        if self._options.compact:
            plans = [plans[0], ("compact", COMPACT), plans[1]]
        jobs = Jobs(
            self._config,
            plans,
            seed=self._options.seed,
            kill_share=self._options.kill_share,
            kill_within_seconds=self._options.kill_within_seconds,
        )
        jobs.start()
        while (gone := time.monotonic() - began) < self._options.seconds:
            self._progress(
                f"{gone:.0f} of {self._options.seconds:.0f} s: {dict(jobs.done)}, killed {dict(jobs.killed)}"
            )
            time.sleep(1.0)
        for writer in writers:
            writer.finish()
            self._report.acknowledged += writer.acknowledged
            self._report.problems += writer.failed
        jobs.finish()
        self._read(plans, jobs)
        self._report.problems += jobs.problems
        self._report.done, self._report.killed = dict(jobs.done), dict(jobs.killed)
        self._report.problem_count = len(self._report.problems)
        self._report.seconds = time.monotonic() - began
        return self._report

    def _begin(self) -> list[Writer]:
        chance = random.Random(self._options.seed)
        writers: list[Writer] = []
        for keeps, partitions, producers, configs in KINDS:
            if keeps == Keeps.THE_LAST_OF_EACH_KEY and not self._options.compact:
                continue
            name = new_topic(self._stack, "pipeline", DISKLESS, partitions, configs=configs)
            topic = Topic.of(name, keeps, partitions, int(configs.get("retention.bytes", 0)))
            self._topics.append(topic)
            for _ in range(producers):
                bootstrap = self._stack.bootstrap(chance.choice(self._racks))
                writers.append(Writer(self._id, len(writers), topic, bootstrap))
        return writers

    def _read(self, last: list[tuple[str, tuple[str, ...]]], jobs: Jobs) -> None:
        """Read everything: twice by Spark after the last jobs, and then once by a consumer."""
        bootstrap = self._stack.bootstrap(self._racks[-1])
        self._progress("the last jobs, and reading by Spark")
        answer = self._by_spark(bootstrap, last)
        for name, code, text in answer.jobs:
            report = json.loads(text) if text.startswith("{") else None
            jobs.judge(Ended(name, "", code, report, text))
            if name == "audit" and report is not None:
                self._report.audit = report["figures"]
        for source in SOURCES:
            for topic in self._topics:
                numbers = range(len(topic.partitions))
                self._judge(
                    source, topic, {number: answer.read[source].get((topic.name, number), []) for number in numbers}
                )
        for topic in self._topics:
            self._progress(f"reading {topic.name} by a consumer")
            read = read_topic(self._id, bootstrap, topic.name, len(topic.partitions))
            self._judge("consumer", topic, dict(enumerate(read)))
            gone = sum(len(one.offsets) for one in topic.partitions) - sum(map(len, read))
            if topic.keeps == Keeps.THE_LAST_OF_EACH_KEY:
                self._report.compacted_away += gone
            elif topic.keeps == Keeps.THE_NEWEST:
                self._report.forgotten += gone

    def _by_spark(self, bootstrap: str, last: list[tuple[str, tuple[str, ...]]]) -> Answer:
        names = tuple(topic.name for topic in self._topics)
        asked = Asked(self._id, self._config, bootstrap, self._racks[-1], names, tuple(last))
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline_under_load.spark_reader"],
            input=pickle.dumps(asked),
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
            timeout=SPARK_SECONDS,
            check=False,
        )
        if done.returncode:
            self._report.problems.append(f"Spark's reader failed: {done.stderr.decode(errors='replace')[-3_000:]}")
            return Answer([], {source: {} for source in SOURCES})
        answer: Answer = pickle.loads(done.stdout)
        return answer

    def _judge(self, reader: str, topic: Topic, read: dict[int, list[Read]]) -> None:
        bootstrap = self._stack.bootstrap(self._racks[-1])
        for number, books in enumerate(topic.partitions):
            start = log_start(bootstrap, topic.name, number) if topic.keeps == Keeps.THE_NEWEST else 0
            self._report.read[reader] = self._report.read.get(reader, 0) + len(read[number])
            self._report.problems += [
                f"{reader}: {topic.name}-{number}: {problem}" for problem in books.problems(read[number], start)
            ]


def pipeline_under_load(stack: Stack, options: RunOptions, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Run it on a stack with `SETTINGS`, or with such short intervals."""
    return Run(stack, options, progress).run()
