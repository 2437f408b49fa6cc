"""The driver of a merge: plans as it goes, has executors make the objects, swaps the rows.

The swap is the one step that counts, and it is made only if the rows are still those that were read: so merges,
produces, retention, deletions and killed drivers may come at any moment. What is not swapped is garbage.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial

from pipeline.driver import MAX_FAILURES_IN_A_ROW, Driver
from pipeline.job import JobContext, JobReport
from pipeline.logs import LogGone, first_rows, patiently, rows_of_log
from pipeline.memory import tasks_at_once
from pipeline.merge.aged import Aged, FirstRow, aged_objects
from pipeline.merge.layout import swap_of
from pipeline.merge.options import MergeOptions
from pipeline.merge.plan import MergeTask, Planner
from pipeline.merge.rewriting import Merged, Unread, merge
from pipeline.reading import finding_of
from pipeline.stores import opened_by_driver, swap_before_ms
from pipeline.tasks import TaskFailed, run_tasks
from proxy.coordinator.interface import FindRequest, Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.lateness import no_later
from proxy.inspection.stores import Stores

MAX_TASKS_TRIED_AGAIN = 64
MAX_ROWS_TRIED_AGAIN = 500_000
"""Maximum number of rows of those tasks together: each is kept in memory until the others are done."""


def run(context: JobContext, options: MergeOptions) -> JobReport:
    """Merge. Raises InspectionError for a topic that is not diskless, StorageError and CoordinatorUnavailable if
    nothing can be done at all; what goes wrong later is a finding."""
    with opened_by_driver(context.settings) as (stores, runner):
        return _MergeJob(context, options, stores, runner).run()


class _MergeJob(Driver):
    def __init__(self, context: JobContext, options: MergeOptions, stores: Stores, runner: asyncio.Runner) -> None:
        super().__init__(context, stores, runner, JobReport("merge"))
        self._options = options
        self._coordinator = stores.coordinator
        self._deleted: set[str] = set()
        """Topics that were deleted meanwhile."""
        self._left_told = 0
        self._log_starts: dict[tuple[bytes, int], int] = {}

    def run(self) -> JobReport:
        topics = [topic for topic in self._stores.named(list(self._context.topics)) if topic.state == "live"]
        began = time.monotonic()
        with self._told_when_stopped("the merge"):
            now_ms, aged = self._look_around(topics)
            planner = Planner(self._options, now_ms=now_ms, rewrite=aged.segments)
            plan = self._plan(planner, topics)
            self._only_tell(plan) if self._context.dry_run else self._merge(plan)
            self._tell_left(planner)
        for name in sorted(self._deleted & set(self._context.topics)):
            self._find("topic_deleted", name, f"{name} was deleted while it was merged; nothing is left to be done")
        self._figures["topics"] = len(topics)
        self._figures["topics_deleted"] = len(self._deleted)
        self._report.figures = {name: self._figures[name] for name in self._names()}
        self._report.figures["merge_seconds"] = round(time.monotonic() - began, 3)
        return self._report

    def _names(self) -> list[str]:
        """Return the names of the reported figures, in their order."""
        names = ["topics", "topics_deleted", "rows_scanned", "bytes_scanned", "bytes_left_large", "bytes_left_few"]
        if self._options.max_age_ms is not None:
            names += ["objects_aged", "bytes_dead"]
        names += ["tasks", "objects_planned", "bytes_planned", "rows_planned"]
        if not self._context.dry_run:
            names += ["tasks_failed", "gets", "bytes_read", "objects_written", "bytes_written", "bytes_merged"]
            names += ["rows_merged", "rows_unreadable", *(f"swaps_{answer.name.lower()}" for answer in SwapAnswer)]
        return names

    # What is to be done

    def _look_around(self, topics: list[DisklessTopic]) -> tuple[int, Aged]:
        """Return the store's time, and the objects that have to be rewritten for their age."""
        for topic in topics:
            logs = self._call(
                patiently(partial(self._coordinator.describe, topic.topic_id, list(range(topic.partitions))))
            )
            self._context.progress.total(bytes=sum(log.size_bytes for log in logs if log is not None))
            for partition, log in enumerate(logs):
                if log is not None:
                    self._log_starts[topic.topic_id, partition] = log.log_start_offset
        now_ms = self._coordinator.store_time_ms() or time.time_ns() // 1_000_000
        if self._options.max_age_ms is None:
            return now_ms, Aged(frozenset(), 0)
        older_than_ms = now_ms - self._options.max_age_ms
        first_rows = [first for topic in topics for first in self._begun_in_the_middle(topic.topic_id)]
        aged = self._call(
            aged_objects(self._coordinator, self._stores.storage, older_than_ms=older_than_ms, first_rows=first_rows)
        )
        self._figures["objects_aged"] = len(aged.segments)
        self._figures["bytes_dead"] = aged.dead_bytes
        return now_ms, aged

    def _begun_in_the_middle(self, topic_id: bytes) -> list[FirstRow]:
        """First rows of the topic's logs, as far as they begin before the log start."""
        starts = [(partition, start) for (of, partition), start in self._log_starts.items() if of == topic_id]
        requests = [FindRequest(topic_id, partition, start, 1) for partition, start in starts]
        answers = self._call(patiently(partial(self._coordinator.find, requests)))
        return [
            FirstRow(answer.rows[0], start)
            for answer, (_, start) in zip(answers, starts, strict=True)
            if answer.rows and answer.rows[0].base_offset < start
        ]

    def _plan(self, planner: Planner, topics: Iterable[DisklessTopic]) -> Iterator[MergeTask]:
        for topic in topics:
            logs = ((partition, self._rows(topic, partition)) for partition in range(topic.partitions))
            for task in planner.tasks(topic.name, topic.topic_id, logs):
                self._figures["tasks"] += 1
                self._figures["objects_planned"] += len(task.outputs)
                self._figures["bytes_planned"] += task.size_bytes
                self._figures["rows_planned"] += sum(output.rows for output in task.outputs)
                self._context.progress.total(tasks=1)
                self._tell_left(planner)
                yield self._with_log_starts(task)

    def _with_log_starts(self, task: MergeTask) -> MergeTask:
        starts = {
            part.partition: self._log_starts.get((task.topic_id, part.partition), 0)
            for output in task.outputs
            for part in output.parts
            if part.rows[0].base_offset < self._log_starts.get((task.topic_id, part.partition), 0)
        }
        return task._replace(log_starts=tuple(starts.items()))

    def _rows(self, topic: DisklessTopic, partition: int) -> Iterator[Row]:
        """Yield all confirmed rows, page by page; no more if the topic is deleted meanwhile."""
        pages = rows_of_log(self._coordinator, topic.topic_id, partition)

        async def following() -> tuple[Row, ...]:
            async for page in pages:
                return page
            return ()

        try:
            while page := self._call(following()):
                self._figures["rows_scanned"] += len(page)
                self._figures["bytes_scanned"] += sum(row.length for row in page)
                yield from page
        except LogGone:
            self._deleted.add(topic.name)

    def _tell_left(self, planner: Planner) -> None:
        left = planner.left
        self._figures["bytes_left_large"], self._figures["bytes_left_few"] = left.large_bytes, left.few_bytes
        self._context.progress.advance(bytes=left.all_bytes - self._left_told)
        self._left_told = left.all_bytes

    def _only_tell(self, plan: Iterable[MergeTask]) -> None:
        for task in plan:
            self._context.progress.advance(bytes=task.size_bytes, objects=len(task.outputs), tasks=1)

    # Doing it

    def _merge(self, plan: Iterable[MergeTask]) -> None:
        failed: list[MergeTask] = []
        failed_rows = in_a_row = 0
        for task, answer in self._executed(plan):
            if not isinstance(answer, TaskFailed):
                in_a_row = 0
                self._swap(task, answer)
                continue
            in_a_row += 1
            if in_a_row == MAX_FAILURES_IN_A_ROW:
                self._failed(task, answer)
                self._find("gave_up", "", f"the merge has stopped after {in_a_row} tasks failed in a row; run it again")
                return
            rows = sum(output.rows for output in task.outputs)
            if len(failed) < MAX_TASKS_TRIED_AGAIN and failed_rows + rows <= MAX_ROWS_TRIED_AGAIN:
                failed.append(task)
                failed_rows += rows
            else:
                self._failed(task, answer)
        for task, answer in self._executed(failed):
            if isinstance(answer, TaskFailed):
                self._failed(task, answer)
            else:
                self._swap(task, answer)

    def _executed(self, tasks: Iterable[MergeTask]) -> Iterator[tuple[MergeTask, Merged | TaskFailed]]:
        timed = (task._replace(not_after_ms=swap_before_ms(self._stores)) for task in tasks)
        spark, function = self._context.spark, partial(merge, self._context.settings)
        at_a_time = tasks_at_once(spark, self._options.task_bytes)
        with closing(run_tasks(spark, function, timed, at_a_time=at_a_time)) as answers:  # type: ignore[type-var]
            yield from answers

    def _failed(self, task: MergeTask, failure: TaskFailed) -> None:
        self._figures["tasks_failed"] += 1
        partitions = sorted({part.partition for output in task.outputs for part in output.parts})
        where = f"{task.topic}-{partitions[0]}"
        if len(partitions) > 1:
            where += f" to {partitions[-1]}"
        self._find("task_failed", where, failure.text)

    def _swap(self, task: MergeTask, merged: Merged) -> None:
        """Put the new rows in the places of the old ones, and check the rows that could not be read."""
        answers = Counter[SwapAnswer]()
        within_ms = self._stores.settings.garbage.further_rows_within_ms
        for made in merged.made:
            output = task.outputs[made.place]
            swaps = [swap_of(output, one, task.topic_id, made.segment) for one in made.joined]
            not_after_ms = no_later(task.not_after_ms, self._coordinator, within_ms)
            answered = self._call(patiently(partial(self._coordinator.rows.replace, swaps, not_after_ms=not_after_ms)))
            answers.update(answered)
            self._count(swaps, answered)
            if SwapAnswer.GONE in answered:
                self._deleted.add(task.topic)
            if SwapAnswer.REPLACED not in answered:
                # Nobody uses it, nor will: the fleet's collection deletes it sooner than other orphans.
                self._call(patiently(partial(self._coordinator.tombstone, [made.segment])))
        for answer in SwapAnswer:
            self._figures[f"swaps_{answer.name.lower()}"] += answers[answer]
        if answers[SwapAnswer.REFUSED] or answers[SwapAnswer.LATE]:
            text = "objects were swept as orphans before they were used, or were too old to be safe; run it again"
            self._find("swap_refused", task.topic, text)
        for unread in merged.unread:
            self._see_unread(task, unread)
        written = sum(made.size_bytes for made in merged.made)
        self._figures["gets"] += merged.gets
        self._figures["bytes_read"] += merged.bytes_read
        self._figures["objects_written"] += len(merged.made)
        self._figures["bytes_written"] += written
        self._context.progress.advance(bytes=task.size_bytes, objects=len(merged.made), tasks=1)

    def _count(self, swaps: Iterable[Swap], answers: Iterable[SwapAnswer]) -> None:
        for swap, answer in zip(swaps, answers, strict=True):
            if answer == SwapAnswer.REPLACED and swap.new is not None:
                self._figures["rows_merged"] += len(swap.old)
                self._figures["bytes_merged"] += swap.new.length

    def _see_unread(self, task: MergeTask, unread: Unread) -> None:
        """Report a row that could not be read, unless it no longer exists: its object may be gone with it."""
        find = partial(first_rows, self._coordinator, task.topic_id, unread.partition, unread.row.base_offset)
        try:
            rows = self._call(patiently(find)).rows
        except LogGone:
            self._deleted.add(task.topic)
            return
        if unread.row in rows:
            self._figures["rows_unreadable"] += 1
            where = f"{task.topic}-{unread.partition}, offset {unread.row.base_offset}"
            self._find(finding_of(unread.kind), where, unread.text)
