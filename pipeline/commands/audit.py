"""`diskless-proxy pipeline audit`: compare the coordinator's index with the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.common import AsJson, ConfigFile, DryRun, Master, Shared, SparkConf, Topics, Verbose, run_job

if TYPE_CHECKING:
    from pipeline.job import JobContext, JobReport


def audit(
    config: ConfigFile,
    topic: Topics = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Read no records, only the index, the counts, and the sizes of objects.")
    ] = False,
    orphan_age: Annotated[
        str | None,
        typer.Option(
            "--orphan-age",
            metavar="SPAN",
            help="Age, such as 6h, after which an unused object counts as an orphan; by default the age at "
            "which garbage collection should have deleted it.",
        ),
    ] = None,
    repair_used_bytes: Annotated[
        bool,
        typer.Option(
            "--repair-used-bytes", help="Correct wrong counts of objects' use if they are stable; all topics."
        ),
    ] = False,
    as_json: AsJson = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: SparkConf = None,
    verbose: Verbose = False,
) -> None:
    """Compare the coordinator with the objects: exit 1 if anything is missing, damaged, or counted wrong.

    Safe at any time: what changes meanwhile is checked again before it is reported.
    """
    from pipeline.units import duration_ms

    if repair_used_bytes and topic:
        raise typer.BadParameter(
            "--repair-used-bytes needs all topics, because objects have bytes of many topics; leave out --topic"
        )
    try:
        orphan_age_ms = duration_ms(orphan_age) if orphan_age is not None else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=["--orphan-age"]) from error

    def work(context: JobContext) -> JobReport:
        from pipeline.audit.audit import AuditOptions
        from pipeline.audit.job import run

        options = AuditOptions(data=not no_data, orphan_age_ms=orphan_age_ms, repair_used_bytes=repair_used_bytes)
        return run(context, options)

    run_job("audit", Shared(config, topic, as_json, dry_run, master, conf, verbose), work)
