"""The driver of a merge, on logs in memory: its reports, its retries, and its reasons to stop."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import logs
from pipeline.errors import PipelineError
from pipeline.job import JobContext, JobReport
from pipeline.merge import job
from pipeline.merge.options import MergeOptions
from pipeline.merge.plan import MergeTask
from pipeline.merge.rewriting import Merged, Merger
from pipeline.progress import Progress
from pipeline.tasks import TaskFailed
from proxy.config import Garbage
from proxy.coordinator.interface import CoordinatorUnavailable, DeleteRequest, ShardFenced
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import InspectionError, Stores
from proxy.storage.interface import StoredObject
from tests.batches import make_batch
from tests.support.memory_log import TOPIC, MemoryLog, MemoryObjects, new_log

LENGTH = len(make_batch([b"v" * 100]))
OPTIONS = MergeOptions(target_bytes=10 * LENGTH, task_bytes=10 * LENGTH, min_age_ms=0)
"""Each object makes a task."""


class Objects(MemoryObjects):
    """Objects with the operations that a merge needs besides reading."""

    def __init__(self) -> None:
        super().__init__()
        self.modified_ms = 0

    async def upload(self, key: str, data: bytearray, length: int) -> None:
        assert key not in self.objects
        self.objects[key] = data

    async def objects_listed(self) -> AsyncIterator[StoredObject]:
        for key, data in self.objects.items():
            yield StoredObject(key, len(data), self.modified_ms)


class Listed:
    """The storage as jobs see it: `objects` lists."""

    def __init__(self, inner: Objects) -> None:
        self.fetch, self.upload, self.objects = inner.fetch, inner.upload, inner.objects_listed


class Bench:
    """A log with a segment for each record, and a merge of it in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: int = 40) -> None:
        self.log: MemoryLog = asyncio.run(new_log(1))
        self.objects = Objects()
        self.objects.objects = self.log.storage.objects
        for _ in range(records):
            asyncio.run(self.log.write([(0, make_batch([b"v" * 100]))]))
        self.coordinator = self.log.coordinator
        self.settings = SimpleNamespace(garbage=Garbage())
        self.topic = DisklessTopic("topic", TOPIC, 1, "live")
        self.failing: Callable[[MergeTask], bool] = lambda _: False
        self.executed: list[MergeTask] = []
        self.options = OPTIONS
        self.progress = Progress("merge", io.StringIO())
        monkeypatch.setattr("pipeline.stores.opened", self.opened)
        monkeypatch.setattr(job, "run_tasks", self.run_tasks)
        monkeypatch.setattr(job, "tasks_at_once", lambda spark, task_bytes: task_bytes)
        monkeypatch.setattr(logs, "FIRST_PAUSE_SECONDS", 0)

    @asynccontextmanager
    async def opened(self, settings: Any) -> AsyncIterator[Stores]:
        yield Stores(self.settings, (self.topic,), self.coordinator, Listed(self.objects))  # type: ignore[arg-type]

    def run_tasks(
        self, spark: Any, function: Any, tasks: Iterable[MergeTask], *, at_a_time: int | None = None
    ) -> Iterator[Any]:
        assert at_a_time == self.options.task_bytes, "as many as there is memory for"
        for task in tasks:
            self.executed.append(task)
            yield task, TaskFailed("the disk is full") if self.failing(task) else self.execute(task)

    def execute(self, task: MergeTask) -> Merged:
        return asyncio.run(Merger(Listed(self.objects), task).merge())  # type: ignore[arg-type]

    def merge(self, *topics: str, options: MergeOptions = OPTIONS, dry_run: bool = False) -> JobReport:
        self.options = options
        context = JobContext(None, None, topics, dry_run, self.progress)  # type: ignore[arg-type]
        return job.run(context, options)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def kinds(report: JobReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_everything_is_merged_and_reported(bench: Bench) -> None:
    report = bench.merge()
    assert report.exit_code == 0
    assert report.figures["tasks"] == report.figures["objects_written"] == 4
    assert report.figures["bytes_merged"] == report.figures["bytes_scanned"] == 40 * LENGTH
    assert report.figures["rows_merged"] == 40
    assert report.figures["swaps_replaced"] == 4
    assert report.figures["gets"] == 40
    assert (bench.progress.bytes, bench.progress.tasks, bench.progress.objects) == (40 * LENGTH, 4, 4)
    assert bench.progress.share() == 1
    (read,) = asyncio.run(bench.log.read((0, 0)))
    assert (read.error_code, read.high_watermark) == (0, 40)


def test_a_dry_run_executes_nothing(bench: Bench) -> None:
    report = bench.merge(dry_run=True)
    assert (report.figures["objects_planned"], report.figures["bytes_planned"]) == (4, 40 * LENGTH)
    assert "objects_written" not in report.figures
    assert bench.executed == []
    assert bench.progress.share() == 1


def test_a_topic_that_is_not_diskless_is_reported_by_name(bench: Bench) -> None:
    with pytest.raises(InspectionError, match="nothing is not a diskless topic"):
        bench.merge("nothing")


def test_a_task_that_failed_is_done_once_more(bench: Bench) -> None:
    bench.failing = lambda task: len(bench.executed) == 2
    report = bench.merge()
    assert report.findings == []
    assert len(bench.executed) == 5
    assert report.figures["swaps_replaced"] == 4


def test_a_task_that_fails_again_is_a_finding_and_others_are_done(bench: Bench) -> None:
    first: list[MergeTask] = []

    def fails(task: MergeTask) -> bool:
        first.append(task)
        return task.outputs == first[0].outputs

    bench.failing = fails
    report = bench.merge()
    assert [(finding.kind, finding.where, finding.text) for finding in report.findings] == [
        ("task_failed", "topic-0", "the disk is full")
    ]
    assert (report.figures["tasks_failed"], report.figures["swaps_replaced"]) == (1, 3)
    bench.failing = lambda _: False
    assert bench.merge().exit_code == 0


def test_the_job_stops_if_all_tasks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, records=100)
    bench.failing = lambda _: True
    report = bench.merge()
    assert kinds(report) == ["task_failed", "gave_up"]
    assert len(bench.executed) == job.MAX_FAILURES_IN_A_ROW


@pytest.mark.parametrize(("times", "reported"), [(2, []), (99, ["coordinator_unavailable"])])
def test_a_coordinator_that_does_not_answer_is_asked_again(bench: Bench, times: int, reported: list[str]) -> None:
    left = times
    replace = bench.coordinator.rows.replace

    async def failing(swaps: list[Swap], *, not_after_ms: int) -> list[SwapAnswer]:
        nonlocal left
        left -= 1
        if left >= 0:
            if left % 2:
                await replace(swaps, not_after_ms=not_after_ms)  # the answer is lost
            raise CoordinatorUnavailable("down")
        return await replace(swaps, not_after_ms=not_after_ms)

    bench.coordinator.rows.replace = failing  # type: ignore[method-assign]
    report = bench.merge()
    assert kinds(report) == reported
    if not reported:
        assert report.figures["swaps_replaced"] == 4


def test_a_fence_stops_it(bench: Bench) -> None:
    async def fenced(swaps: list[Swap], *, not_after_ms: int) -> list[SwapAnswer]:
        raise ShardFenced("shard 0 has lost writes")

    bench.coordinator.rows.replace = fenced  # type: ignore[method-assign]
    report = bench.merge()
    assert kinds(report) == ["shard_fenced"]
    assert "shard 0 has lost writes" in report.findings[0].text
    assert len(bench.executed) == 1


def test_an_object_that_was_swept_before_it_was_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(task: MergeTask) -> Merged:
        merged = Bench.execute(bench, task)
        asyncio.run(bench.coordinator.tombstone([made.segment for made in merged.made]))
        return merged

    monkeypatch.setattr(bench, "execute", execute)
    report = bench.merge()
    assert set(kinds(report)) == {"swap_refused"}
    assert report.figures["swaps_refused"] == 4
    (read,) = asyncio.run(bench.log.read((0, 0)))
    assert (read.error_code, read.high_watermark) == (0, 40)


def test_an_object_that_waited_for_long_is_not_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is swept and deleted, and its tombstone removed, while the driver sleeps: only the time shows this."""

    def execute(task: MergeTask) -> Merged:
        merged = Bench.execute(bench, task)
        if bench.log.now_ms == 0:
            for made in merged.made:
                del bench.objects.objects[segment_key(made.segment)]
            bench.log.now_ms += Garbage().orphan_age_ms // 2 + 1
        return merged

    monkeypatch.setattr(bench, "execute", execute)
    report = bench.merge()
    assert kinds(report) == ["swap_refused"]
    assert (report.figures["swaps_late"], report.figures["swaps_replaced"]) == (1, 3)
    (read,) = asyncio.run(bench.log.read((0, 0)))
    assert (read.error_code, read.high_watermark) == (0, 40)
    assert bench.merge().findings == []


def test_nothing_is_written_if_orphans_of_any_age_are_deleted(bench: Bench) -> None:
    bench.settings.garbage = Garbage(orphan_age_ms=0)
    with pytest.raises(PipelineError, match=r"garbage\.orphan_age_ms is 0"):
        bench.merge()
    assert bench.executed == []
    assert bench.merge(dry_run=True).exit_code == 0


def test_a_row_that_can_not_be_read_is_named_once(bench: Bench) -> None:
    key = next(iter(bench.objects.objects))
    del bench.objects.objects[key]
    report = bench.merge()
    assert kinds(report) == ["missing_object"]
    assert report.findings[0].where == "topic-0, offset 0"
    assert key in report.findings[0].text
    assert report.figures["rows_merged"] == 39


def test_old_objects_with_dead_bytes(bench: Bench) -> None:
    bench.merge()
    key = next(key for key, data in bench.objects.objects.items() if data[0] == 1)
    bench.objects.objects[key] += b"dead"
    bench.log.now_ms = 10_000
    bench.objects.modified_ms = 5_000
    aging = MergeOptions(10 * LENGTH, 10 * LENGTH, 0, max_age_ms=6_000)
    assert bench.merge(options=aging).figures["objects_aged"] == 0
    bench.objects.modified_ms = 3_000
    report = bench.merge(options=aging)
    assert (report.figures["objects_aged"], report.figures["bytes_dead"]) == (1, 4)
    assert report.figures["objects_written"] == 1
    assert key in {segment_key(segment) for segment in asyncio.run(bench.coordinator.garbage(0, 1_000))}


@pytest.mark.parametrize("is_merged", [False, True])
def test_records_that_were_deleted_in_the_middle_of_an_old_row(bench: Bench, is_merged: bool) -> None:
    asyncio.run(
        bench.log.write(
            [(0, make_batch([b"secret", b"secret"])), (0, make_batch([b"kept", b"cut"])), (0, make_batch([b"last"]))]
        )
    )
    asyncio.run(bench.coordinator.delete_records([DeleteRequest(TOPIC, 0, 41)]))
    assert len(bench.coordinator.logs[TOPIC, 0].rows) == 1
    if is_merged:
        asyncio.run(bench.log.swap(0, 0, 1))
    bench.log.delete_unused()
    bench.log.now_ms, bench.objects.modified_ms = 10_000, 5_000
    young, old = MergeOptions(10_000, 10_000, 0, max_age_ms=6_000), MergeOptions(10_000, 10_000, 0, max_age_ms=5_000)

    assert bench.merge(options=old).figures["objects_aged"] == 0
    asyncio.run(bench.coordinator.delete_records([DeleteRequest(TOPIC, 0, 43)]))
    assert bench.merge(options=young).figures["objects_aged"] == 0
    report = bench.merge(options=old)
    assert (report.figures["objects_aged"], report.figures["objects_written"], report.findings) == (1, 1, [])
    (row,) = bench.coordinator.logs[TOPIC, 0].rows
    assert (row.base_offset, row.last_offset) == (40, 44)
    assert len(bench.objects.objects[segment_key(row.segment)]) == 1 + row.length
    assert row.length == len(make_batch([b"kept", b"cut"])) + len(make_batch([b"last"]))
    (read,) = asyncio.run(bench.log.read((0, 43)))
    assert read.error_code == 0
    assert bench.merge(options=old).figures["objects_aged"] == 0, "it is not done again and again"
