"""Run it as a command, on its own stack."""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict

from proxy.demo.stack import Stack, StackOptions
from tests.retention_under_load.run import SETTINGS, Report, RunOptions, retention_under_load

MEGABYTE = 1_000_000


def in_words(report: Report) -> str:
    """Return the report in words."""
    figures = report.bytes
    reads = ", ".join(f"{count} in {rack}" for rack, count in report.read.items())
    lines = [
        f"seed {report.seed}: {report.seconds:.0f} s, {report.proxies_killed} lease-holders killed",
        f"records: {report.acknowledged} acknowledged; read: {reads}; {report.skipped} deleted before a reader came, "
        f"out of range {report.overtaken} times",
        f"{report.topics_made} topics made, records deleted on request {report.records_deletions} times",
        "bytes, mean: "
        + ", ".join(f"{name} {figures[f'mean_{name}'] / MEGABYTE:.2f} MB" for name in ("live", "used", "bucket")),
        "bytes, most: "
        + ", ".join(f"{name} {figures[f'most_{name}'] / MEGABYTE:.2f} MB" for name in ("live", "bucket", "waiting"))
        + f"; the least room to what may wait {figures['least_room'] / MEGABYTE:.2f} MB",
        f"oldest object that no row named any more: {figures['oldest_dead_seconds']:.1f} s of "
        f"{figures['allowed_dead_seconds']:.1f} s allowed; {figures['looks']} looks",
        f"{report.problem_count} problems" + "".join(f"\n  {problem}" for problem in report.problems),
    ]
    return "\n".join(lines)


def main() -> int:
    """Return exit code 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m tests.retention_under_load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long topics are written and deleted from")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)

    def progress(text: str) -> None:
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)

    with Stack(StackOptions(overrides=SETTINGS, start_timeout_seconds=180.0)) as stack:
        report = retention_under_load(stack, RunOptions(arguments.minutes * 60, seed), progress)
    print(file=sys.stderr)
    print(json.dumps(asdict(report)) if arguments.json else in_words(report), flush=True)
    return 1 if report.problem_count else 0


if __name__ == "__main__":
    sys.exit(main())
