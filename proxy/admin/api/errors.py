"""`/api/errors`: the last warnings and errors of the log, with their remedies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from proxy.admin.api.question import Question, Told, shown
from proxy.telemetry.recent import RECENT_ERRORS, RecentError

_LONGEST_TEXT = 600


async def told(question: Question) -> list[RecentError]:
    """Return those of this process."""
    return RECENT_ERRORS.newest(question.limit)


def document(told: Iterable[Told], question: Question) -> dict[str, Any]:
    """The answer of `GET /api/errors`: of workers that say the same one line, which counts for all."""
    folded: dict[tuple[str, str, str], dict[str, Any]] = {}
    for error in (error for one in told for error in one.value):
        row = asdict(error)
        for name in ("event", "text", "remedy"):
            row[name] = shown(row[name], _LONGEST_TEXT)
        known = folded.setdefault((error.level, error.event, error.text), row)
        if known is not row:
            known["count"] += row["count"]
            known["time_ms"] = max(known["time_ms"], row["time_ms"])
    newest = sorted(folded.values(), key=lambda row: row["time_ms"], reverse=True)
    return {"errors": newest[: question.limit]}
