"""`diskless-proxy pipeline merge`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.commands.common import (
    AsJson,
    ConfigFile,
    DryRun,
    Master,
    Shared,
    SparkConf,
    Topics,
    Verbose,
    byte_count,
    run_job,
)
from pipeline.merge.options import MergeOptions
from pipeline.units import duration_ms


def _duration_ms(text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def merge(
    config: ConfigFile,
    topic: Topics = None,
    target_bytes: Annotated[
        int,
        typer.Option(parser=byte_count, metavar="SIZE", help="Minimum size of an object, if there is enough to merge."),
    ] = "64MiB",  # type: ignore[assignment]
    task_bytes: Annotated[
        int,
        typer.Option(parser=byte_count, metavar="SIZE", help="Bytes of one task's objects, which it keeps in memory."),
    ] = "256MiB",  # type: ignore[assignment]
    min_age: Annotated[
        int, typer.Option(parser=_duration_ms, metavar="SPAN", help="Age below which records are not merged.")
    ] = "60s",  # type: ignore[assignment]
    max_age: Annotated[
        int | None,
        typer.Option(parser=_duration_ms, metavar="SPAN", help="Rewrite older objects with deleted bytes."),
    ] = None,
    min_inputs: Annotated[int, typer.Option(min=2, help="Minimum number of objects that a new one replaces.")] = 4,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: SparkConf = None,
    verbose: Verbose = False,
) -> None:
    """Merge small segments of many partitions into large objects of one partition each."""
    from pipeline.merge.job import run

    try:
        options = MergeOptions(target_bytes, task_bytes, min_age, max_age, min_inputs)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    shared = Shared(config, topic, as_json, dry_run, master, conf, verbose)
    run_job("merge", shared, lambda context: run(context, options))
