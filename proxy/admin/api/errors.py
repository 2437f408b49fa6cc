"""`/api/errors`: the last warnings and errors of the log, with their remedies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from proxy.admin.api.question import ProcessAnswer, Question, shown
from proxy.telemetry.recent import RECENT_ERRORS, RecentError

_LONGEST_TEXT = 600


async def collect(question: Question) -> list[RecentError]:
    """Return the newest warnings and errors of this process."""
    return RECENT_ERRORS.newest(question.limit)


def document(answers: Iterable[ProcessAnswer], question: Question) -> dict[str, Any]:
    """Return the answer of `GET /api/errors`. A line that several workers logged is one row, with the sum of their
    counts."""
    folded: dict[tuple[str, str, str], dict[str, Any]] = {}
    for error in (error for one in answers for error in one.value):
        row = asdict(error)
        for name in ("event", "text", "remedy"):
            row[name] = shown(row[name], _LONGEST_TEXT)
        known = folded.setdefault((error.level, error.event, error.text), row)
        if known is not row:
            known["count"] += row["count"]
            known["time_ms"] = max(known["time_ms"], row["time_ms"])
    newest = sorted(folded.values(), key=lambda row: row["time_ms"], reverse=True)
    return {"errors": newest[: question.limit]}
