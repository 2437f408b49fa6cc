"""Spans of a report."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from pipeline.traffic.span import Span, span_of
from proxy.accounting.rollups.table import HOUR_MS

DAY_MS = 24 * HOUR_MS


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW_MS = ms("2026-11-22T10:30")


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (None, None, ("2026-11-15T10:00", "2026-11-22T11:00")),
        ("36h", None, ("2026-11-20T22:00", "2026-11-22T11:00")),
        (None, "2026-11-20", ("2026-11-13T00:00", "2026-11-20T00:00")),
        ("2026-11-15", "2026-11-16", ("2026-11-15T00:00", "2026-11-16T00:00")),
        ("2026-11-15T10:20", "2026-11-15T12:20", ("2026-11-15T10:00", "2026-11-15T13:00")),
        ("2026-11-15T10:00+02:00", "2026-11-15T10:00Z", ("2026-11-15T08:00", "2026-11-15T10:00")),
        ("1m", "0s", ("2026-11-22T10:00", "2026-11-22T11:00")),
    ],
)
def test_a_span_is_widened_to_hours_of_utc(begin: str | None, end: str | None, expected: tuple[str, str]) -> None:
    assert span_of(begin, end, NOW_MS) == Span(*map(ms, expected))


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        ("yesterday", None, "is not a time; write"),
        ("2026-15-11", None, "is not a time; write 2026-11-15"),
        ("5 weeks", None, "is not a span of time; write"),
        ("2026-11-16", "2026-11-15", "ends before it begins"),
        ("2026-11-15", "2026-11-15", "ends before it begins"),
    ],
)
def test_an_invalid_span_is_reported_with_the_remedy(begin: str, end: str | None, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        span_of(begin, end, NOW_MS)


def test_days_end_a_day_late() -> None:
    """A rollup that ends after midnight is stored there."""
    days = Span(ms("2026-11-15T00:00"), ms("2026-11-17T00:00")).days()
    assert list(days) == [date(2026, 11, 15), date(2026, 11, 16), date(2026, 11, 17)]


def test_a_span_as_text() -> None:
    assert Span(ms("2026-11-15T00:00"), ms("2026-11-15T05:00")).text() == "2026-11-15 00:00 to 2026-11-15 05:00 UTC"
    assert Span(0, 5 * HOUR_MS).hours == 5
