"""Common parts of the jobs' commands: their options, running a job, and printing its report.

A job's command makes `Shared` of the options that all commands have, and calls `run_job` with the work:

    def merge(config: ConfigFile, topic: Topics = None, ..., verbose: Verbose = False) -> None:
        shared = Shared(config, topic, as_json, dry_run, master, conf, verbose)
        run_job("merge", shared, lambda context: job.run(context, MergeOptions(...)))
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.console.config_file import config_option
from proxy.console.console import FAILED, fail, output, quiet

if TYPE_CHECKING:
    from pipeline.job import JobContext, JobReport
    from proxy.config import Settings

ConfigFile = Annotated[Path, config_option("A proxy's settings file.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="A diskless topic; may be repeated. By default all of them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object on standard output.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
Master = Annotated[
    str | None, typer.Option("--master", help="Spark's master; by default local[*], and under spark-submit its own.")
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g; may be repeated."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print all output of Spark and Java, and stack traces.")]


@dataclass(frozen=True, slots=True)
class Shared:
    """The options that every job has."""

    config: Path
    topics: list[str] | None = None
    as_json: bool = False
    dry_run: bool = False
    master: str | None = None
    conf: list[str] | None = None
    verbose: bool = False


async def look_at_topics(settings: Settings, topics: tuple[str, ...]) -> None:
    """Raise a job's errors about unusable stores, and about names that are not diskless topics."""
    from pipeline.stores import opened

    async with opened(settings) as stores:
        stores.named(list(topics))


async def look_at_storage(settings: Settings, topics: tuple[str, ...]) -> None:
    """Raises StorageError if it can't be used. For a job that needs no coordinator."""
    from pipeline.stores import storage_opened

    async with storage_opened(settings):
        pass


Look = Callable[["Settings", tuple[str, ...]], Coroutine[Any, Any, None]]


def run_job(name: str, shared: Shared, work: Callable[[JobContext], JobReport], *, look: Look = look_at_topics) -> None:
    """Run a job in a Spark session, print its report, and end the command with its exit code.

    `look` runs before Spark, which takes seconds to start, so that plain mistakes are reported at once.

    An error ends the command with one line on standard error; with `verbose` the stack traces come before it.
    """
    spark_conf = _spark_conf(shared.conf or [])
    began = time.monotonic()
    try:
        with quiet():
            report = _run(name, shared, spark_conf, work, look)
    except Exception as error:  # Spark's, Java's and those of what it reads
        from pipeline.errors import is_ours, one_line

        if shared.verbose:
            traceback.print_exception(error)
        fail(one_line(error) if is_ours(error) else f"{one_line(error)}; -v shows more")
    report.dry_run = shared.dry_run
    report.figures.setdefault("duration_seconds", round(time.monotonic() - began, 3))
    if shared.as_json:
        typer.echo(report.as_json())
    else:
        report.print(output())
    sys.stdout.flush()
    raise typer.Exit(report.exit_code)


def _run(
    name: str, shared: Shared, conf: dict[str, str], work: Callable[[JobContext], JobReport], look: Look
) -> JobReport:
    from pipeline.job import JobContext
    from pipeline.progress import Progress
    from pipeline.session import spark_session
    from pipeline.signals import end_signals
    from proxy.config import load_settings

    settings = load_settings(shared.config)
    topics = tuple(dict.fromkeys(shared.topics or ()))
    app_name = f"diskless-proxy pipeline {name}"
    with end_signals():
        asyncio.run(look(settings, topics))
        session = spark_session(app_name, master=shared.master, conf=conf, verbose=shared.verbose)
        with session as spark, Progress(name) as progress:
            return work(JobContext(settings, spark, topics, shared.dry_run, progress))


def byte_count(text: str) -> int:
    """Return a size as options have it, such as 64MiB."""
    from pipeline import units

    try:
        return units.byte_count(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _spark_conf(texts: list[str]) -> dict[str, str]:
    conf = dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise typer.BadParameter(f"{text!r} is not a setting of Spark; write --conf spark.driver.memory=4g")
        conf[key] = value
    return conf


__all__ = [
    "FAILED",
    "AsJson",
    "ConfigFile",
    "DryRun",
    "Master",
    "Shared",
    "SparkConf",
    "Topics",
    "Verbose",
    "byte_count",
    "look_at_storage",
    "run_job",
]
