"""Sums of rows equal the counters, however often and whenever they are read."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxy.accounting.rollups.counted import Amount, Counted, What, hour_of
from proxy.accounting.rollups.table import HOUR_MS, Measure, RollupRow
from proxy.telemetry.stats import OTHER_TOPICS

HOUR = 500_000 * HOUR_MS


def records(topic: str, client_rack: str = "a") -> What:
    return What(Measure.RECORDS, "classic", "fetch", client_rack, "b", topic)


def take(counted: Counted, *, max_rows: int = 1_000) -> list[RollupRow]:
    return counted.take("p", "a", max_rows=max_rows)


def sizes(rows: list[RollupRow]) -> dict[str, int]:
    return {row.topic: row.bytes for row in rows}


STEPS = st.lists(
    st.tuples(st.sampled_from(["x", "y", "z"]), st.integers(0, 2**40), st.integers(0, 3), st.booleans()),
    max_size=60,
)


@given(STEPS, st.integers(1, 3))
def test_nothing_is_lost_or_counted_twice(steps: list[tuple[str, int, int, bool]], max_rows: int) -> None:
    counted, counters = Counted(), Counter[str]()
    by_hour, written = Counter[int](), Counter[int]()
    rows: list[RollupRow] = []
    for topic, size, hour, takes in steps:
        counters[topic] += size
        by_hour[HOUR + hour * HOUR_MS] += size
        counted.add(((records(one), Amount(total)) for one, total in counters.items()), HOUR + hour * HOUR_MS)
        if takes:
            rows += take(counted, max_rows=max_rows)
    rows += take(counted, max_rows=max_rows)
    for row in rows:
        written[row.hour_ms] += row.bytes
    assert +written == +by_hour


def test_labels_are_those_of_the_counter() -> None:
    counted = Counted()
    counted.add([(records("orders"), Amount(5)), (What(Measure.PUTS, "diskless", "produce"), Amount(7, 2))], HOUR)
    assert set(take(counted)) == {
        RollupRow(HOUR, "p", "a", "records", "classic", "fetch", "a", "b", "orders", 5, 0),
        RollupRow(HOUR, "p", "a", "puts", "diskless", "produce", "", "", "", 7, 2),
    }


def test_an_unchanged_counter_takes_no_row() -> None:
    counted = Counted()
    for _ in range(2):
        counted.add([(records("orders"), Amount(5)), (records("idle"), Amount(0))], HOUR)
    assert sizes(take(counted)) == {"orders": 5}
    counted.add([(records("orders"), Amount(5))], HOUR)
    assert take(counted) == []


def test_a_restarted_counter_counts_from_zero() -> None:
    counted = Counted()
    counted.add([(records("orders"), Amount(100))], HOUR)
    counted.add([(records("orders"), Amount(30))], HOUR)
    assert sizes(take(counted)) == {"orders": 130}


def test_the_smallest_beyond_the_limit_are_one_row_for_their_racks() -> None:
    counted = Counted()
    amounts = [(records(f"t{size}"), Amount(size)) for size in (1, 2, 50, 60)]
    amounts += [(records("far", client_rack="c"), Amount(3)), (What(Measure.GETS, "diskless", "fetch"), Amount(0, 1))]
    counted.add(amounts, HOUR)
    rows = take(counted, max_rows=2)
    assert sorted((row.client_rack, row.topic, row.bytes, row.requests) for row in rows) == [
        ("", "", 0, 1),
        ("a", OTHER_TOPICS, 3, 0),
        ("a", "t50", 50, 0),
        ("a", "t60", 60, 0),
        ("c", OTHER_TOPICS, 3, 0),
    ]


def test_hours_begin_at_full_hours() -> None:
    assert hour_of(HOUR) == hour_of(HOUR + HOUR_MS - 1) == HOUR
