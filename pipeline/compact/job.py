"""The driver of a compaction: plans, lets Spark find the last record of each key, swaps rows in order (decision 0038).

Nothing is lost, whatever happens meanwhile: a row is replaced only if it is still the one that was read. So it may be
killed at any moment and run again, next to produces, merges, retention, deletions and another compaction.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from pipeline.compact.apply import Applier, State
from pipeline.compact.brokers import default_cleanup_policy
from pipeline.compact.chunk import ChunkAnswer
from pipeline.compact.following import KeysProgress
from pipeline.compact.options import CompactOptions
from pipeline.compact.plan import Plan, plan_logs
from pipeline.compact.policy import configs_of
from pipeline.compact.spans import Work
from pipeline.compact.spilled import Spilled
from pipeline.compact.survivors import Survivors
from pipeline.driver import MAX_FAILURES_IN_A_ROW, Driver
from pipeline.errors import one_line
from pipeline.job import JobContext, JobReport
from pipeline.logs import patiently
from pipeline.memory import tasks_at_once
from pipeline.signals import ending
from pipeline.stores import opened_by_driver, swap_before_ms, swaps_within_ms
from pipeline.tasks import TaskFailed, run_jobs
from proxy.coordinator.interface import ShardFenced
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.inspection.stores import Stores, open_registry
from proxy.protocol.cleanup_policy import CLEANUP_POLICY, DELETE, is_compacted

PASSES = 3
"""Over logs whose rows are changed meanwhile, as a merge does it."""
TASK_MEMORY_FACTOR = 3
"""Memory of a task as a multiple of what it reads."""
WAITING_PER_CORE = 4
"""Answers that wait for one before them: while there are more, no more tasks begin."""
_FIGURES = (
    "topics",
    "logs",
    "logs_compacted",
    "logs_not_due",
    "logs_empty",
    "logs_gone",
    "passes",
    "tasks",
    "bytes_planned",
    "bytes_read",
    "bytes_after",
    "records_before",
    "records_after",
    "tombstones_removed",
    "objects_written",
    "bytes_written",
    "swaps",
    "rows_replaced",
    "rows_written",
    "bytes_spilled",
)
_IN_A_DRY_RUN = {"objects_written": "objects_to_write", "bytes_written": "bytes_to_write"}


def run(context: JobContext, options: CompactOptions) -> JobReport:
    """Compact. Raises InspectionError for a topic that is not diskless, StorageError and CoordinatorUnavailable if
    nothing can be done at all; what goes wrong later is a finding."""
    with opened_by_driver(context.settings) as (stores, runner):
        return _CompactJob(context, options, stores, runner).run()


class _CompactJob(Driver):
    def __init__(self, context: JobContext, options: CompactOptions, stores: Stores, runner: asyncio.Runner) -> None:
        super().__init__(context, stores, runner, JobReport("compact"))
        self._options = options
        self._gave_up = False
        self._keys_seconds = 0.0
        self._figures.update(dict.fromkeys(_FIGURES, 0))

    def run(self) -> JobReport:
        began = time.monotonic()
        if not self._context.dry_run:
            swaps_within_ms(self._stores.settings)
        topics = self._topics()
        with self._told_when_stopped("the compaction"):
            self._compact(topics)
        self._figures["topics"] = len(topics)
        seconds = {"keys_seconds": self._keys_seconds, "compact_seconds": time.monotonic() - began}
        names = _IN_A_DRY_RUN if self._context.dry_run else {}
        self._report.figures = {names.get(name, name): value for name, value in self._figures.items()} | {
            name: round(value, 3) for name, value in seconds.items()
        }
        return self._report

    def _topics(self) -> list[DisklessTopic]:
        """Return the topics to compact; a named topic that is not compacted is a finding."""
        asked = [topic for topic in self._stores.named(list(self._context.topics)) if topic.state == "live"]
        default = self._default_policy(asked)
        found: list[DisklessTopic] = []
        for topic in asked:
            policy = topic.configs.get(CLEANUP_POLICY, default)
            try:
                configs_of(topic.configs)
            except ValueError as error:
                self._find("invalid_config", topic.name, f"it is left as it is: {error}; alter the topic's configs")
            else:
                if is_compacted({CLEANUP_POLICY: policy}):
                    found.append(topic)
                elif self._context.topics:
                    text = f"{CLEANUP_POLICY} of {topic.name} is {policy}: set it to compact, or do not name the topic"
                    self._find("not_compacted", topic.name, text)
        return found

    def _default_policy(self, topics: Sequence[DisklessTopic]) -> str:
        """Return the policy of topics that don't set `cleanup.policy`."""
        if all(CLEANUP_POLICY in topic.configs for topic in topics):
            return DELETE
        return self._call(default_cleanup_policy(self._context.settings))

    def _still_compacted(self, topics: Sequence[DisklessTopic]) -> list[DisklessTopic]:
        """Return which of the topics are compacted at this moment, with their present configs."""
        now = {topic.topic_id: topic for topic in self._call(patiently(partial(open_registry, self._stores.settings)))}
        there = [now[topic.topic_id] for topic in topics if topic.topic_id in now]
        default = self._default_policy(there)
        return [one for one in there if one.state == "live" and is_compacted({CLEANUP_POLICY: default, **one.configs})]

    def _compact(self, topics: Sequence[DisklessTopic]) -> None:
        plan = self._planned(topics)
        for name in ("logs_not_due", "logs_empty"):
            self._figures[name] = getattr(plan, name)
        self._figures["logs"] = len(plan.logs)
        for number in range(1, PASSES + 1):
            if not plan.chunks:
                return
            self._figures["passes"] = number
            applier = self._pass(plan)
            again = [log for log, state in enumerate(applier.states) if state is State.AGAIN]
            if not again or ending.is_set():
                return
            if number == PASSES or self._gave_up:
                for log in again:
                    text = f"left half done, run it again: {applier.reasons[log]}"
                    self._find(applier.kinds[log], plan.logs[log].name, text)
                return
            plan = self._planned(topics, [(plan.logs[log].topic_id, plan.logs[log].partition) for log in again])

    def _planned(self, topics: Sequence[DisklessTopic], only: Sequence[tuple[bytes, int]] | None = None) -> Plan:
        """Plan the compaction. When logs are tried again, all are due, because their plan is not finished. Reads
        everything twice.

        A plan reaches up to its moment. From the moment when a topic is no longer compacted, it takes records without
        keys and keeps all records of a key. So the topic has to be compacted both before the logs are looked at and
        afterwards.
        """
        plan, planned, still = Plan(), list[DisklessTopic](), self._still_compacted(topics)
        while len(planned) != len(still):
            planned = still
            make = partial(
                plan_logs,
                self._stores,
                planned,
                now_ms=self._now_ms(),
                chunk_bytes=self._options.task_bytes,
                force=self._options.force or only is not None,
                only=only,
            )
            plan = self._call(patiently(make))
            still = self._still_compacted(planned)
        self._figures["tasks"] += len(plan.chunks)
        self._figures["bytes_planned"] += plan.size_bytes
        self._context.progress.total(bytes=2 * plan.size_bytes, tasks=len(plan.chunks))
        return plan

    def _now_ms(self) -> int:
        if self._options.now_ms is not None:
            return self._options.now_ms
        return self._stores.coordinator.store_time_ms() or time.time_ns() // 1_000_000

    def _pass(self, plan: Plan) -> Applier:
        within_ms = self._stores.settings.garbage.further_rows_within_ms
        applier = Applier(self._stores.coordinator, plan, self._context.dry_run, within_ms)
        work = Work(self._context.settings, tuple(plan.logs), tuple(plan.chunks), self._now_ms(), self._context.dry_run)
        spilled = Spilled(self._context.spark)
        following = KeysProgress(
            self._context.spark, self._context.progress, tasks=len(plan.chunks), size_bytes=plan.size_bytes
        )
        began = time.monotonic()
        try:
            with following:
                survivors = Survivors(self._context.spark, work)
        except Exception as error:  # Spark's, Java's, and those of what its tasks read
            text = one_line(error)
            _raise_if_fenced(text)
            self._find("task_failed", "", f"the keys can't be read, nothing was changed: {text}")
            applier.stop_all()
            return applier
        self._keys_seconds += time.monotonic() - began
        self._figures["bytes_spilled"] += spilled.disk_bytes()
        try:
            self._rewrite(plan, survivors, applier)
        finally:
            survivors.forget()
            self._count(applier)
        for log, state in enumerate(applier.states):
            if state is State.FAILED and log in applier.reasons:
                self._find(applier.kinds[log], plan.logs[log].name, applier.reasons[log])
        return applier

    def _rewrite(self, plan: Plan, survivors: Survivors, applier: Applier) -> None:
        in_a_row = 0
        _stop_unreadable(applier, survivors)

        def live() -> Iterator[int]:
            for number, chunk in enumerate(plan.chunks):
                if any(applier.states[span.log] is State.UNDER_WAY for span in chunk):
                    applier.begin(number, 0 if self._context.dry_run else swap_before_ms(self._stores))
                    yield number
                else:
                    self._call(applier.take(number, ChunkAnswer()))

        most = WAITING_PER_CORE * self._context.spark.sparkContext.defaultParallelism
        jobs = run_jobs(
            self._context.spark,
            survivors.rewrite,
            live(),
            at_a_time=tasks_at_once(self._context.spark, TASK_MEMORY_FACTOR * self._options.task_bytes),
            has_room=lambda: applier.waiting < most,
        )
        with closing(jobs) as answers:  # type: ignore[type-var]
            for number, answer in answers:
                _stop_unreadable(applier, survivors)
                size_bytes = sum(span.size_bytes for span in plan.chunks[number])
                if isinstance(answer, TaskFailed):
                    _raise_if_fenced(answer.text)
                    in_a_row += 1
                    self._call(applier.take(number, answer.text))
                    if in_a_row == MAX_FAILURES_IN_A_ROW:
                        text = f"the compaction has stopped after {in_a_row} tasks failed in a row; run it again"
                        self._find("gave_up", "", text)
                        self._gave_up = True
                        return
                    continue
                in_a_row = 0
                self._call(applier.take(number, answer))
                for name in _FIGURES:
                    self._figures[name] += getattr(answer, name, 0)
                written = bool(answer.bytes_written)
                self._figures["objects_written"] += written
                self._context.progress.advance(bytes=size_bytes, objects=written, tasks=1)

    def _count(self, applier: Applier) -> None:
        self._figures["swaps"] += applier.swaps
        self._figures["rows_replaced"] += applier.rows_replaced
        self._figures["rows_written"] += applier.rows_written
        states = Counter(applier.states)
        self._figures["logs_gone"] += states[State.GONE]
        self._figures["logs_compacted"] += states[State.DONE]


def _stop_unreadable(applier: Applier, survivors: Survivors) -> None:
    for log, unread in survivors.unreadable.items():
        applier.stop(log, State.FAILED, unread.text, unread.kind)


def _raise_if_fenced(text: str) -> None:
    """Raise ShardFenced if a task has met it, judging by the line that is left of its error."""
    kind, _, reason = text.partition(": ")
    if kind == ShardFenced.__name__:
        raise ShardFenced(reason)
