from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pipeline.source.filters import ANY, bounds_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARE = {
    EqualTo: lambda value, other: value == other,
    EqualNullSafe: lambda value, other: value == other,
    GreaterThan: lambda value, other: value > other,
    GreaterThanOrEqual: lambda value, other: value >= other,
    LessThan: lambda value, other: value < other,
    LessThanOrEqual: lambda value, other: value <= other,
    In: lambda value, others: value in others,
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(0, 4),
    "offset": st.integers(0, 9),
    "timestamp": st.integers(0, 9_000).map(lambda microseconds: EPOCH + timedelta(microseconds=microseconds)),
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(list(COMPARE)))
    value = draw(st.lists(VALUES[column], max_size=3).map(tuple) if kind is In else VALUES[column])
    return kind((column,), value)


@given(st.lists(filters(), max_size=5), st.fixed_dictionaries(VALUES))
def test_no_record_that_spark_would_keep_is_out_of_bounds(chosen: list[Filter], record: dict[str, Any]) -> None:
    bounds = bounds_of(chosen)
    if all(COMPARE[type(one)](record[one.attribute[0]], one.value) for one in chosen):  # type: ignore[attr-defined]
        assert bounds.wants(record["topic"], record["partition"])
        assert bounds.lowest_offset <= record["offset"] <= bounds.highest_offset
        # Records have whole milliseconds, times in queries need not.
        assert bounds.lowest_timestamp_ms <= (record["timestamp"] - EPOCH) / timedelta(milliseconds=1)


def test_bounds_are_as_narrow_as_the_filters_say() -> None:
    bounds = bounds_of(
        [
            In(("topic",), ("a", "b", None)),
            EqualTo(("topic",), "a"),
            GreaterThan(("partition",), 1),
            LessThan(("partition",), 4),
            GreaterThanOrEqual(("offset",), 7),
            LessThanOrEqual(("offset",), 9),
            GreaterThan(("timestamp",), EPOCH + timedelta(seconds=3)),
        ]
    )
    assert [number for number in range(9) if bounds.wants("a", number)] == [2, 3]
    assert not bounds.wants("b", 2)
    assert (bounds.lowest_offset, bounds.highest_offset, bounds.lowest_timestamp_ms) == (7, 9, 3_000)


def test_an_unknown_filter_bounds_nothing() -> None:
    assert (
        bounds_of(
            [
                IsNotNull(("offset",)),
                Not(EqualTo(("partition",), 1)),
                EqualTo(("headers", "key"), "a"),
                GreaterThan(("value",), b"x"),
                GreaterThan(("timestamp",), datetime(2030, 1, 1)),
                LessThan(("timestamp",), EPOCH),
                GreaterThan(("offset",), "5"),
            ]
        )
        == ANY
    )
    nothing = bounds_of([EqualTo(("partition",), None)])
    assert not nothing.wants("a", 0)
