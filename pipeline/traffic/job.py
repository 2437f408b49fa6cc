"""`pipeline traffic`: rollups read by tasks, summed up by the driver, priced and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.job import Finding, JobContext
from pipeline.tasks import TaskFailed, run_tasks
from pipeline.traffic.costs import Model
from pipeline.traffic.output import write_files
from pipeline.traffic.reading import ReadAnswer, ReadTask, read_rollups, rollups_in, tasks_of
from pipeline.traffic.report import NO_TRAFFIC, TrafficReport, bad_rollup
from pipeline.traffic.span import Span
from pipeline.traffic.summary import summary_of
from pipeline.traffic.table import bounded, empty, summed
from proxy.config import Prices

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """The options of a report."""

    span: Span
    prices: Prices | None = None
    """Prices instead of those in the settings."""
    racks: int | None = None
    """Number of racks of the model; if None, the number of racks seen."""
    replication_factor: int = 3
    follower_fetching: bool = False
    output: Path | None = None
    """Directory for the files; no files are written if None."""


def run(context: JobContext, options: TrafficOptions) -> TrafficReport:
    """Read, sum up, show. Raises StorageError if the rollups can't be listed, PipelineError for the output."""
    report = TrafficReport("traffic")
    rollups, foreign = rollups_in(context.settings, options.span)
    report.findings += [bad_rollup(*one) for one in foreign]
    tasks = list(tasks_of(context.settings, rollups, options.span, context.topics))
    context.progress.total(bytes=sum(rollup.size_bytes for rollup in rollups), tasks=len(tasks))
    table, racks, figures = empty(), set[str](), {"rollups_read": 0, "rollup_bytes_read": 0}
    for task, answer in run_tasks(context.spark, read_rollups, tasks):
        if isinstance(answer, TaskFailed):
            report.findings.append(_unread(task, answer))
        else:
            table = _added(table, answer, report, figures)
            racks |= answer.racks
        context.progress.advance(
            bytes=sum(rollup.size_bytes for rollup in task.rollups), objects=len(task.rollups), tasks=1
        )
    if not table.num_rows and not report.findings:
        report.findings.append(_nothing(options.span, context.topics))
    model = Model(options.racks or max(1, len(racks)), options.replication_factor, options.follower_fetching)
    report.summary = summary_of(table, options.span, options.prices or context.settings.prices, model)
    report.figures |= figures | report.summary.figures()
    if options.output is not None:
        report.figures["files"] = write_files(options.output, table, report.summary)
    return report


def _added(table: pa.Table, answer: ReadAnswer, report: TrafficReport, figures: dict[str, int]) -> pa.Table:
    report.findings += [bad_rollup(*one) for one in answer.bad]
    figures["rollups_read"] += answer.rollups
    figures["rollup_bytes_read"] += answer.bytes
    return bounded(summed([table, answer.table]))


def _unread(task: ReadTask, failed: TaskFailed) -> Finding:
    first, last = task.rollups[0].key, task.rollups[-1].key
    text = f"{len(task.rollups)} rollups could not be read and are left out: {failed.text}"
    return Finding("task_failed", f"{first} to {last}", text)


def _nothing(span: Span, topics: tuple[str, ...]) -> Finding:
    of = f" of {', '.join(topics)}" if topics else ""
    return Finding(
        NO_TRAFFIC,
        span.text(),
        f"no rollup has traffic{of}: check that storage.url is the proxies', rollups.enable is on, and the span "
        "is within rollups.retention_ms",
    )
