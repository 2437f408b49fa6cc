"""Run it as a command, on its own stack."""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict

from proxy.demo.stack import Stack, StackOptions
from tests.moves_under_load.run import (
    BROKER_PROPERTIES,
    KINDS,
    RACK_KINDS,
    SELECTOR,
    Report,
    RunOptions,
    moves_under_load,
)


def in_words(report: Report) -> str:
    """Return the report in words."""
    near, far = (report.fetched_bytes.get(side, 0) for side in ("near", "far"))
    lines = [
        f"seed {report.seed}: {report.seconds:.0f} s, {report.written} records written; "
        f"in the log twice, as their producers sent them twice: {report.twice}; given up: {report.failed}",
        "moves: " + ", ".join(f"{name} {count}" for name, count in report.moves.items()),
        f"fetched through the proxies: {near / 1e6:.1f} MB near, {far / 1e6:.1f} MB far "
        f"({100 * near / max(near + far, 1):.1f} % near)",
        "reads from the leader, by reason: "
        + (", ".join(f"{reason} {count}" for reason, count in report.leader_reads.items()) or "none"),
    ]
    for name, count in report.read.items():
        median, most_of_all, most = report.latency_ms[name]
        errors = ", ".join(f"{kind} {times}" for kind, times in report.errors[name].items())
        lines.append(
            f"{name}: {count} records; {median:.0f} ms, p99 {most_of_all:.0f} ms, most {most:.0f} ms; out of range "
            f"{report.expected_resets[name]} times as expected, {report.resets[name]} else; errors: {errors or '-'}"
        )
    lines.append(f"{report.problem_count} problems" + "".join(f"\n  {problem}" for problem in report.problems))
    return "\n".join(lines)


def main() -> int:
    """Return exit code 1 if there were problems."""
    parser = argparse.ArgumentParser(prog="python -m tests.moves_under_load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long things move")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--racks", type=int, default=3, help="with two brokers and a proxy each")
    parser.add_argument("--reading-racks", type=int, default=2, help="racks with a reader of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of readers, with commas between")
    parser.add_argument(
        "--selector",
        action="store_true",
        help=f"brokers redirect clients that name their rack, as {' and '.join(RACK_KINDS)} then do",
    )
    parser.add_argument("--moves", default="", help="only these, with commas between")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)

    def progress(text: str) -> None:
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    racks = tuple(f"rack-{letter}" for letter in "abcd"[: arguments.racks])
    properties = BROKER_PROPERTIES | (SELECTOR if arguments.selector else {})
    stack_options = StackOptions(
        racks=racks, brokers_per_rack=2, broker_properties=properties, start_timeout_seconds=180.0
    )
    options = RunOptions(
        arguments.seconds,
        seed,
        (*arguments.kinds.split(","), *(RACK_KINDS if arguments.selector else ())),
        reading_racks=min(arguments.reading_racks, len(racks)),
        moves=tuple(arguments.moves.split(",")) if arguments.moves else (),
    )
    with Stack(stack_options) as stack:
        report = moves_under_load(stack, options, progress)
    print(file=sys.stderr)
    print(json.dumps(asdict(report)) if arguments.json else in_words(report), flush=True)
    return 1 if report.problem_count else 0


if __name__ == "__main__":
    sys.exit(main())
