"""Helpers to inspect merges: every batch as readers get it, and the objects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pipeline import stores
from pipeline.job import JobContext, JobReport
from pipeline.logs import LogGone, rows_of_log
from pipeline.merge import job
from pipeline.merge.options import MergeOptions
from pipeline.progress import Progress
from pipeline.reading import Range, row_batches
from proxy.config import Settings
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores

Answer = TypeVar("Answer")

TARGET = 20_000
OPTIONS = MergeOptions(target_bytes=TARGET, task_bytes=3 * TARGET, min_age_ms=0)
"""Options with sizes for which a few segments are many."""


def merge(
    spark: Any, settings: Settings, *topics: str, options: MergeOptions = OPTIONS, dry_run: bool = False
) -> JobReport:
    with Progress("merge", io.StringIO()) as progress:
        return job.run(JobContext(settings, spark, topics, dry_run, progress), options)


def ask(settings: Settings, question: Callable[[Stores], Any]) -> Any:
    """Return the answer of a coroutine function that gets the stores."""

    async def asked() -> Any:
        async with stores.opened(settings) as opened:
            return await question(opened)

    return asyncio.run(asked())


def rows(settings: Settings, topic: DisklessTopic) -> list[list[Row]]:
    """Return the rows of every partition; none of a deleted topic."""

    async def found(opened: Stores) -> list[list[Row]]:
        logs = []
        for partition in range(topic.partitions):
            try:
                pages = [page async for page in rows_of_log(opened.coordinator, topic.topic_id, partition)]
            except LogGone:
                pages = []
            logs.append([row for page in pages for row in page])
        return logs

    return ask(settings, found)


def batches(settings: Settings, topic: DisklessTopic) -> list[list[bytes]]:
    """Return the batches of every partition, as readers get them."""
    logs = rows(settings, topic)

    async def read(opened: Stores) -> list[list[bytes]]:
        return [[one for row in log for one in await _read(opened, row)] for log in logs]

    return ask(settings, read)


async def _read(opened: Stores, row: Row) -> Iterator[bytes]:
    data = b"" if row.is_marker else await opened.storage.fetch(segment_key(row.segment))
    run, bounds = row_batches(data, Range(row.segment, 0, len(data), (0,)), row)
    return (bytes(run[one.position : one.position + one.length]) for one in bounds)


def objects(settings: Settings, topic: DisklessTopic) -> set[bytes]:
    """Return the segments that contain its rows."""
    return {row.segment for log in rows(settings, topic) for row in log}


def stored(settings: Settings) -> dict[str, int]:
    """Return all objects of the storage, with their sizes."""

    async def listed(opened: Stores) -> dict[str, int]:
        return {one.key: one.size_bytes async for one in opened.storage.objects()}

    return ask(settings, listed)


def after_first_task(monkeypatch: Any, action: Callable[[], Any]) -> None:
    """Run an action in the driver of the next merge when a task's objects exist and no row is swapped yet."""
    original = job.run_tasks

    def interrupted(*arguments: Any, **more: Any) -> Iterator[Any]:
        monkeypatch.setattr(job, "run_tasks", original)
        is_first = True
        for answer in original(*arguments, **more):
            if is_first:
                action()
            is_first = False
            yield answer

    monkeypatch.setattr(job, "run_tasks", interrupted)


def before_first_task(monkeypatch: Any, action: Callable[[], Any]) -> None:
    """Run an action in the driver of the next merge when it is planned and nothing is read yet."""
    original = job.run_tasks

    def delayed(spark: Any, function: Any, tasks: Any, **more: Any) -> Iterator[Any]:
        monkeypatch.setattr(job, "run_tasks", original)
        planned = list(tasks)
        action()
        yield from original(spark, function, planned, **more)

    monkeypatch.setattr(job, "run_tasks", delayed)
