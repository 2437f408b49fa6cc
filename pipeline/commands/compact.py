"""`diskless-proxy pipeline compact`."""

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
from pipeline.compact.options import CompactOptions


def compact(
    config: ConfigFile,
    topic: Topics = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compact even if little is new: ignore min.cleanable.dirty.ratio.")
    ] = False,
    task_bytes: Annotated[
        int, typer.Option(parser=byte_count, metavar="SIZE", help="Bytes that one task reads, and keeps in memory.")
    ] = "128MiB",  # type: ignore[assignment]
    as_json: AsJson = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: SparkConf = None,
    verbose: Verbose = False,
) -> None:
    """Keep the last record of each key, in topics whose cleanup.policy has compact."""
    from pipeline.compact.job import run

    try:
        options = CompactOptions(force, task_bytes)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    shared = Shared(config, topic, as_json, dry_run, master, conf, verbose)
    run_job("compact", shared, lambda context: run(context, options))
