"""`diskless-proxy pipeline run`: several jobs in turn, once or forever.

Each has a Spark session of its own: between two rounds nothing of Spark is left in memory, and a JVM that died is only
the end of its job.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from pipeline.commands.common import FAILED, ConfigFile, Master, SparkConf, Topics, Verbose
from pipeline.commands.jobs import JOBS, app, run_command

Run = Callable[[list[str]], int]
"""Runs one job, given as on the command line; returns its exit code. Raises Ended if the process is asked to end."""


def schedule(
    config: ConfigFile,
    jobs: Annotated[list[str], typer.Argument(help="Jobs, in this order; with options in quotes: 'merge --dry-run'.")],
    every: Annotated[
        str | None,
        typer.Option("--every", help="Time from one start to the next: 15m, 1h. By default the jobs run once."),
    ] = None,
    topic: Topics = None,
    master: Master = None,
    conf: SparkConf = None,
    verbose: Verbose = False,
) -> None:
    """Run several jobs in turn, with the options named here; a job that fails does not stop the next one.

    With --every this goes on forever: if a round takes longer than that, the next one follows at once. SIGTERM ends it:
    at once while it waits; in a job when the running tasks are done. Without --every, exits with 1 if a job failed.
    """
    from pipeline.units import duration_ms

    try:
        seconds = duration_ms(every) / 1000 if every is not None else 0.0
        commands = [shlex.split(job) for job in jobs]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if every is not None and not seconds:
        raise typer.BadParameter("--every needs the time between two starts, such as 15m or 1h")
    shared = ["--config", str(config)]
    shared += [word for name in topic or () for word in ("--topic", name)]
    shared += ["--master", master] if master else []
    shared += [word for setting in conf or () for word in ("--conf", setting)]
    shared += ["--verbose"] if verbose else []
    _check(commands, shared)
    rounds = [[command[0], *shared, *command[1:]] for command in commands]
    if every is None:
        codes = [run_command(arguments) for arguments in rounds]
        raise typer.Exit(FAILED if any(codes) else 0)
    _forever(rounds, seconds, run_command)


def _check(commands: Sequence[Sequence[str]], shared: Sequence[str]) -> None:
    """Let the command line of each be parsed before the first one runs."""
    parsers: Any = typer.main.get_command(app)
    for command in commands:
        if not command or command[0] not in JOBS:
            raise typer.BadParameter(f"{shlex.join(command)!r} is not a job; the jobs are {', '.join(JOBS)}")
        parsers.commands[command[0]].make_context(command[0], [*shared, *command[1:]])


def _forever(rounds: Sequence[list[str]], seconds: float, run: Run) -> None:
    from pipeline.signals import end_signals, ending, raise_if_ending
    from pipeline.units import seconds_text

    with end_signals():  # each job has handlers of its own over these
        while True:
            began = time.monotonic()
            failed = [arguments[0] for arguments in rounds if run(arguments)]
            left = max(0.0, seconds - (time.monotonic() - began))
            how = f"findings or failed: {', '.join(failed)}" if failed else "all done"
            line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {how}; the next round begins in {seconds_text(left)}"
            print(line, file=sys.stderr, flush=True)
            # Returns at once if a signal came whose exception got lost, as one in a callback of the interpreter does.
            ending.wait(left)
            raise_if_ending()
