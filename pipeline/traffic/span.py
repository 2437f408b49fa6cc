"""The span of time that a report is about: whole hours of UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from pipeline.units import duration_ms
from proxy.accounting.rollups.table import HOUR_MS

DEFAULT_DAYS = 7


class Span(NamedTuple):
    """From the beginning of one hour to that of another, milliseconds since 1970."""

    from_ms: int
    to_ms: int

    @property
    def hours(self) -> int:
        """How many."""
        return (self.to_ms - self.from_ms) // HOUR_MS

    def days(self) -> Iterator[date]:
        """Days whose folders may hold rollups of it.

        A rollup lies under the day of its newest row, and the rest of it may be of the day before.
        """
        day, last = _time(self.from_ms).date(), _time(self.to_ms - 1).date() + timedelta(days=1)
        while day <= last:
            yield day
            day += timedelta(days=1)

    def text(self) -> str:
        """For people."""
        return f"{_time(self.from_ms):%Y-%m-%d %H:%M} to {_time(self.to_ms):%Y-%m-%d %H:%M} UTC"


def span_of(begin: str | None, end: str | None, now_ms: int) -> Span:
    """Return the span that two words of the command line name, widened to whole hours.

    Each is a date (`2026-11-15`), a time (`2026-11-15T10:00`, UTC unless it has another zone), or a time ago (`36h`,
    `7d`). If None, they are seven days before the end, and now. Raises ValueError with the remedy.
    """
    to_ms = now_ms if end is None else _when_ms(end, now_ms)
    from_ms = to_ms - DEFAULT_DAYS * 24 * HOUR_MS if begin is None else _when_ms(begin, now_ms)
    if from_ms >= to_ms:
        raise ValueError(f"the span ends before it begins: {_time(from_ms):%Y-%m-%dT%H:%M} is not before the end")
    return Span(from_ms - from_ms % HOUR_MS, to_ms + -to_ms % HOUR_MS)


def _when_ms(text: str, now_ms: int) -> int:
    if re.fullmatch(r"\d+\s*[a-z]+", text.strip()):
        return now_ms - duration_ms(text)
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write 2026-11-15, 2026-11-15T10:00 (UTC), or 36h or 7d ago"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
