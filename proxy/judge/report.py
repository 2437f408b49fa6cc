"""A verdict as text for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import Any

from proxy.judge.findings import Verdict

_SHOWN = ("client", "transaction", "topic", "partition", "first", "count", "numbers", "records", "commit", "outcome")
"""Fields of an operation that a line of the report has, in this order."""


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as a JSON object."""
    return {
        "ok": verdict.ok,
        "complete": verdict.complete,
        "totals": {str(anomaly): count for anomaly, count in verdict.totals.items()},
        "findings": [finding.as_json() for finding in verdict.findings],
        "counts": asdict(verdict.counts),
        "notes": list(verdict.notes),
    }


def text(verdict: Verdict) -> str:
    """Return the report for people."""
    return "\n".join(_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    counts = verdict.counts
    yield f"sent          {counts.sent:,}: {counts.acknowledged:,} acknowledged, {counts.failed:,} given up" + (
        f", of which {counts.failed_but_read:,} are in the log" if counts.failed_but_read else ""
    )
    yield (
        f"transactions  {counts.committed:,} committed, {counts.aborted:,} aborted"
        + f", {counts.unknown:,} with an unknown outcome" * bool(counts.unknown)
    )
    for number, (view, count) in enumerate(counts.read.items()):
        yield f"{'' if number else 'read':<13} {count:,} by {view}"
    if counts.repeated:
        yield f"repeated      {counts.repeated:,} times a record is in the log again, as Kafka allows"
    if counts.deleted:
        yield f"deleted       {counts.deleted:,} acknowledged records are below the start of the log"
    if counts.foreign:
        yield f"foreign       {counts.foreign:,} times a consumer got a record that is not of this run"
    if counts.errors:
        yield "errors        " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.errors.items()))
    for note in verdict.notes:
        yield f"note          {note}"
    for anomaly, findings in groupby(sorted(verdict.findings, key=lambda one: one.anomaly), lambda one: one.anomaly):
        yield ""
        yield f"{anomaly}: {verdict.totals[anomaly]:,}"
        for finding in findings:
            where = f"{finding.topic}[{finding.partition}]: " if finding.topic else ""
            yield f"  {where}{finding.message}"
            for operation in finding.operations:
                yield f"      {_operation(operation)}"
    yield ""
    if not verdict.complete:
        yield "The history has no end: the run was cut off. Losses cannot be judged."
    if verdict.totals:
        yield "Anomalies: " + ", ".join(f"{anomaly} {count:,}" for anomaly, count in verdict.totals.items())
    elif verdict.complete:
        yield f"No anomaly in {counts.acknowledged:,} acknowledged records."


def _operation(operation: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name} {operation[name]}" for name in _SHOWN if operation.get(name) not in (None, -1))
    error = f", error {operation['error']}" if operation.get("error") else ""
    return f"line {operation['line']}, {operation['at_us'] / 1e6:.3f} s: {operation['op']}: {shown}{error}"
