"""Run it as a command, on its own servers."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from pathlib import Path

import structlog

from tests.failovers_under_load.run import KINDS, Report, RunOptions, failovers_under_load


def in_words(report: Report) -> str:
    """Return the report as text."""
    books = report.books
    lines = [
        f"seed {report.seed}: {report.seconds:.0f} s, {report.failovers.total()} failovers; "
        f"{report.fenced.total()} of them fenced shards, {books.unfences} losses were accepted",
        *(
            f"  {kind.replace('_', ' ')}: {count}, {report.fenced[kind]} fenced shards, "
            f"{report.lossy[kind]} lost acknowledged offsets"
            for kind, count in sorted(report.failovers.items())
        ),
        f"offsets: {books.acknowledged} acknowledged, {books.lost} of them lost and reported; "
        f"{books.unacknowledged_lost} without an answer were reported, too",
        f"{books.twice_meanwhile} offsets were given by two primaries at the same time, before either was fenced",
        f"{len(books.problems)} problems" + "".join(f"\n  {problem}" for problem in books.problems[:20]),
    ]
    return "\n".join(lines)


def main() -> int:
    """Return exit code 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m tests.failovers_under_load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the store fails over")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--wait-replicas", type=int, default=0, help="the setting redis.wait_replicas of the proxies")
    parser.add_argument("--only", choices=KINDS, default="", help="make failovers of this kind only")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    def progress(text: str) -> None:
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as directory:
        options = RunOptions(arguments.minutes * 60, seed, Path(directory), arguments.wait_replicas, arguments.only)
        report = asyncio.run(failovers_under_load(options, progress))
    print(file=sys.stderr)
    print(in_words(report), flush=True)
    return 1 if report.books.problems else 0


if __name__ == "__main__":
    sys.exit(main())
