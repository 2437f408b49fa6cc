"""The report of a run as a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.matrix.cells import Fault, Mode, Target
from tests.matrix.run import Row


def page(rows: Sequence[Row], *, seed: int, seconds: float, command: str) -> str:
    """Return the page."""
    ran = [row for row in rows if not row.not_run]
    bad = [row for row in ran if row.problem]
    lines = [
        "# The fault matrix",
        "",
        "Each fault happens to each part of a real stack: three brokers, three proxies, a Redis-compatible server and",
        "an S3 server on one machine. [`diskless-proxy verify`](verify.md) writes and reads topics of both kinds",
        f"and judges the history. This page is the report of one run, as `{command}` wrote it.",
        "",
        f"- Run on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {platform.system()}; seed {seed};"
        f" {seconds / 60:.0f} minutes.",
        f"- {len(ran)} cells ran, {len(bad)} with a problem. {len(rows) - len(ran)} did not run, see below.",
        "- A cell has two runs: with load and without. Figures are the seconds from the end of a fault until a record",
        "  was acknowledged: in a classic topic / in a classic and a diskless one. `–` did not run.",
        "- A history has up to six cells. If its verdict is bad, all of them count as bad.",
        "",
    ]
    for mode in Mode:
        of_mode = [row for row in rows if row.mode == mode]
        if not of_mode:
            continue
        lines += [
            f"## `journal.mode: {mode}`",
            "",
            "| part | " + " | ".join(Fault) + " |",
            "|---" * (len(Fault) + 1) + "|",
        ]
        for target in Target:
            cells = []
            for fault in Fault:
                both = [row for row in of_mode if (row.target, row.fault) == (target, fault)]
                cells.append("; ".join(_figure(row) for row in sorted(both, key=lambda row: not row.loaded)))
            lines.append(f"| {target} | " + " | ".join(cells) + " |")
        lines.append("")
    if bad:
        lines += ["## Problems", ""]
        lines += [
            f"- {row.mode}, {row.target}, {row.fault}, load {row.loaded}, seed {row.seed}: {row.problem}" for row in bad
        ]
        lines.append("")
    reasons = dict.fromkeys(f"{row.target}, {row.fault}: {row.not_run}" for row in rows if row.not_run)
    lines += ["## Cells that did not run", "", *[f"- {reason}" for reason in _grouped(reasons)], ""]
    lines += ["## Seeds", "", "| cell | seed | what happened |", "|---|---|---|"]
    for row in ran:
        load = "with" if row.loaded else "without"
        lines.append(f"| {row.mode}, {row.target}, {row.fault}, {load} load | {row.seed} | {row.happened} |")
    return "\n".join([*lines, ""])


def _grouped(reasons: Sequence[str] | dict[str, None]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for one in reasons:
        cell, _, reason = one.partition(": ")
        by_reason.setdefault(reason, []).append(cell)
    return [f"{reason}: {'; '.join(cells)}." for reason, cells in by_reason.items()]


def _figure(row: Row) -> str:
    if row.not_run:
        return "–"
    if row.problem:
        return "**problem**"
    return " / ".join(f"{seconds:.1f}" for seconds in row.answered_s.values())
