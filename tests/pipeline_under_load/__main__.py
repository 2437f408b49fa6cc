"""Run it as a command, on its own stack."""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict

from proxy.demo.stack import Stack, StackOptions
from tests.pipeline_under_load.run import SETTINGS, Report, RunOptions, pipeline_under_load


def in_words(report: Report) -> str:
    """Return the report in words."""

    def counts(numbers: dict[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(numbers.items())) or "none"

    lines = [
        f"seed {report.seed}: {report.seconds:.0f} s",
        f"records: {report.acknowledged} acknowledged; read: {counts(report.read)}; {report.compacted_away} compacted "
        f"away, {report.forgotten} forgotten",
        f"jobs that ended: {counts(report.done)}; killed: {counts(report.killed)}",
        "the last audit: "
        + ", ".join(f"{report.audit.get(name, 0)} {name}" for name in ("rows_checked", "batches_checked", "objects")),
        f"{report.problem_count} problems" + "".join(f"\n  {problem}" for problem in report.problems),
    ]
    return "\n".join(lines)


def main() -> int:
    """Return exit code 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline_under_load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long topics are written")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--kill-share", type=float, default=0.6, help="of the jobs, that something of is killed")
    parser.add_argument("--no-compact", action="store_true", help="no compacted topic")
    parser.add_argument("--storage", choices=("file", "s3"), default="file", help="where the objects are")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)

    def progress(text: str) -> None:
        print(f"\r{text:<100}", end="", file=sys.stderr, flush=True)

    stack_options = StackOptions(overrides=SETTINGS, storage=arguments.storage, start_timeout_seconds=180.0)
    options = RunOptions(arguments.minutes * 60, seed, arguments.kill_share, compact=not arguments.no_compact)
    with Stack(stack_options) as stack:
        report = pipeline_under_load(stack, options, progress)
    print(file=sys.stderr)
    print(json.dumps(asdict(report)) if arguments.json else in_words(report), flush=True)
    return 1 if report.problem_count else 0


if __name__ == "__main__":
    sys.exit(main())
