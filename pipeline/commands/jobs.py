"""The jobs as commands, and how one of them is run in this process."""

from __future__ import annotations

from collections.abc import Callable

import typer

from pipeline.commands.audit import audit
from pipeline.commands.compact import compact
from pipeline.commands.merge import merge
from pipeline.commands.traffic import traffic

JOBS: dict[str, Callable[..., None]] = {"merge": merge, "compact": compact, "audit": audit, "traffic": traffic}
"""Jobs that `run` can do in turn, by name."""

app = typer.Typer(
    name="pipeline",
    help="Batch jobs over object storage, on Spark: here, or on a cluster by spark-submit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for _name, _job in JOBS.items():
    app.command(_name)(_job)


def run_command(arguments: list[str]) -> int:
    """Run one of the commands in this process; return its exit code, 1 if it ends with words instead.

    Raises Ended if the process is asked to end.
    """
    from pipeline.signals import Ended

    try:
        app(arguments, prog_name="diskless-proxy pipeline")
    except Ended:
        raise
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
