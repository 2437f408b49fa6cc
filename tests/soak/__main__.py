"""Run the soak as a command, on its own stack. Exit code 1 if records were lost, errors surfaced, or a figure grew."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from proxy.demo.signals import end_signals
from proxy.demo.stack import Stack, StackOptions
from tests.soak.report import Result, in_words, machine, write_report
from tests.soak.run import BROKER_PROPERTIES, SETTINGS, Report, RunOptions, soak

LINES_SECONDS = 10.0


class Progress:
    """One line that is updated in place on a terminal; elsewhere, a line now and then.

    Client libraries in this process print to standard error, so this goes to a file meanwhile.
    """

    def __init__(self, clients_log: Path) -> None:
        self._printed_s = 0.0
        self._terminal = sys.stderr.isatty()
        self._log = clients_log.open("wb")
        self._errors = os.fdopen(os.dup(2), "w")

    def __enter__(self) -> Progress:
        os.dup2(self._log.fileno(), 2)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._errors.fileno(), 2)
        self._log.close()
        self._errors.close()

    def __call__(self, text: str) -> None:
        if self._terminal:
            print(f"\r\033[K{text[:200]}", end="", file=self._errors, flush=True)
        elif time.monotonic() - self._printed_s >= LINES_SECONDS:
            self._printed_s = time.monotonic()
            print(text, file=self._errors, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long all goes on")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--rate", type=float, default=60.0, help="records a second of the load that never ends")
    parser.add_argument("--storage", choices=("file", "s3"), default="s3", help="where the objects are")
    parser.add_argument("--clients", default="", help="of the applications, separated by commas; empty means all")
    parser.add_argument(
        "--report", type=Path, default=None, help="a Markdown file; its pictures go to images/ next to it"
    )
    parser.add_argument("--data", type=Path, default=None, help="a file for all figures, as JSON")
    parser.add_argument("--again", type=Path, default=None, help="no run: write --report from a file of --data")
    arguments = parser.parse_args()
    if arguments.again is not None:
        result = Result(**json.loads(arguments.again.read_text()))
    else:
        result = run(arguments)
        if arguments.data is not None:
            arguments.data.write_text(json.dumps(asdict(result)))
    if arguments.report is not None:
        write_report(arguments.report, result)
    report = Report(**result.report)
    print(in_words(report), flush=True)
    return 0 if report.right else 1


def run(arguments: argparse.Namespace) -> Result:
    """Run it and return the result."""
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    logging.disable()  # the client libraries' own log lines are not errors of an application
    options = RunOptions(arguments.minutes * 60, seed, arguments.rate)
    if arguments.clients:
        options = RunOptions(arguments.minutes * 60, seed, arguments.rate, tuple(arguments.clients.split(",")))
    stack_options = StackOptions(
        storage=arguments.storage, overrides=SETTINGS, broker_properties=BROKER_PROPERTIES, start_timeout_seconds=180.0
    )
    with (
        tempfile.TemporaryDirectory(prefix="diskless-proxy-soak-") as directory,
        Progress(Path(directory) / "clients.log") as progress,
        end_signals() as signals,
        Stack(stack_options, cancelled=signals.ended, progress=progress) as stack,
    ):
        report = soak(stack, options, progress, signals.ended)
        return Result(asdict(report), machine(), arguments.storage)


if __name__ == "__main__":
    sys.exit(main())
