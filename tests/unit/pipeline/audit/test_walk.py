"""Right indexes have no defect, however they are cut into pages; in damaged ones, the walk finds the damage."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.audit.defects import Defect, Log, Suspicion
from pipeline.audit.walk import END, LogWalk, check_page
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_rewriting import IndexedRow, IndexPage, LogState

LOG = Log("topic", bytes(16), 0)
GAPPY = LOG._replace(leaves_gaps=True)


def index(lengths: list[int], times: list[int], first: int = 0) -> list[IndexedRow]:
    """Return rows with these numbers of offsets and these maximum timestamps."""
    ends = list(accumulate(lengths, initial=first))
    rows = [
        Row(base, end - 1, bytes(16), 1, 10 * (end - base), time, 0)
        for base, end, time in zip(ends, ends[1:], times, strict=False)
    ]
    return [IndexedRow(row, maximum) for row, maximum in zip(rows, accumulate(times, max), strict=True)]


def state(rows: list[IndexedRow], start: int = 0) -> LogState:
    end = rows[-1].row.last_offset + 1
    size = sum(indexed.row.length for indexed in rows)
    newest_ms = max(indexed.running_maximum_ms for indexed in rows)
    return LogState(start, end, size, len(rows), newest_ms, end, -1)


def walked(log: Log, recorded: LogState, rows: list[IndexedRow], page_rows: int = 1_000) -> list[Suspicion]:
    walk = LogWalk(log)
    found: list[Suspicion] = []
    for at in range(0, len(rows), page_rows):
        some = tuple(rows[at : at + page_rows])
        is_last = at + page_rows >= len(rows)
        found += walk.take(IndexPage(recorded, some, END if is_last else some[-1].row.last_offset + 1))
    return found + list(walk.end())


def defects(found: list[Suspicion]) -> list[Defect]:
    return [suspicion.defect for suspicion in found]


sizes = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**6)), min_size=2, max_size=30)


@given(sizes, st.integers(1, 7), st.integers(0, 1_000), st.integers(0, 60))
def test_a_right_index_has_no_defects(made: list[tuple[int, int]], page_rows: int, first: int, into: int) -> None:
    rows = index([length for length, _ in made], [time for _, time in made], first)
    start = min(first + into, rows[0].row.last_offset)
    assert walked(LOG, state(rows, start), rows, page_rows) == []


@given(sizes, st.integers(1, 7), st.data())
def test_a_row_that_is_gone_is_a_gap(made: list[tuple[int, int]], page_rows: int, data: st.DataObject) -> None:
    rows = index([length for length, _ in made], [time for _, time in made])
    recorded = state(rows)
    gone = rows.pop(data.draw(st.integers(0, len(rows) - 1)))
    recorded = recorded._replace(rows=recorded.rows - 1, size_bytes=recorded.size_bytes - gone.row.length)
    (found,) = walked(LOG, recorded, rows, page_rows)
    assert found.defect == Defect.GAP
    assert f"from {gone.row.base_offset} to {gone.row.last_offset}" in found.text
    # The one page from there on shows it, too.
    page = IndexPage(recorded, tuple(one for one in rows if one.row.last_offset >= found.offset), END)
    assert defects(list(check_page(LOG, page, None, at_beginning=found.offset == 0))) == [Defect.GAP]
    assert walked(GAPPY, recorded, rows, page_rows) == []


@given(sizes, st.integers(1, 7), st.data())
def test_a_row_that_begins_too_early_overlaps(made: list[tuple[int, int]], page_rows: int, data: st.DataObject) -> None:
    rows = index([length for length, _ in made], [time for _, time in made])
    recorded = state(rows)
    number = data.draw(st.integers(1, len(rows) - 1))
    indexed = rows[number]
    rows[number] = indexed._replace(row=indexed.row._replace(base_offset=indexed.row.base_offset - 1))
    (found,) = walked(LOG, recorded, rows, page_rows)
    assert found.defect == Defect.OVERLAPPING_ROWS
    page = IndexPage(recorded, tuple(one for one in rows if one.row.last_offset >= found.offset), END)
    assert defects(list(check_page(LOG, page, None, at_beginning=found.offset == 0))) == [Defect.OVERLAPPING_ROWS]


@given(sizes, st.integers(1, 7), st.data())
def test_a_running_maximum_that_falls(made: list[tuple[int, int]], page_rows: int, data: st.DataObject) -> None:
    rows = index([length for length, _ in made], [time for _, time in made])
    recorded = state(rows)
    number = data.draw(st.integers(0, len(rows) - 1))
    rows[number] = rows[number]._replace(running_maximum_ms=rows[number].running_maximum_ms - 1)
    assume(number > 0)
    assert Defect.WRONG_MAX_TIMESTAMP in defects(walked(LOG, recorded, rows, page_rows)) or (
        # It is right again: the row before has a lower one, and the row itself, too.
        rows[number].running_maximum_ms >= max(rows[number].row.max_timestamp_ms, rows[number - 1].running_maximum_ms)
    )


def test_rows_out_of_bounds() -> None:
    rows = index([10, 10, 10], [1, 2, 3])
    below = walked(LOG, state(rows, 10), rows)
    assert defects(below) == [Defect.ROW_BELOW_LOG_START]
    beyond = walked(LOG, state(rows)._replace(high_watermark=20, last_stable_offset=20), rows)
    assert defects(beyond) == [Defect.ROW_BEYOND_HIGH_WATERMARK]
    assert beyond[0].row == rows[2].row


def test_an_index_that_lost_all() -> None:
    recorded = state(index([10], [1]))._replace(rows=0, size_bytes=0)
    walk = LogWalk(LOG)
    assert defects([*walk.take(IndexPage(recorded, (), END)), *walk.end()]) == [Defect.GAP]
    empty = recorded._replace(log_start_offset=10)
    walk = LogWalk(LOG)
    assert [*walk.take(IndexPage(empty, (), END)), *walk.end()] == []


@pytest.mark.parametrize("change", [{"rows": 4}, {"size_bytes": 301}, {"size_bytes": 299}])
def test_sums(change: dict[str, int]) -> None:
    rows = index([10, 10, 10], [1, 2, 3])
    assert defects(walked(LOG, state(rows)._replace(**change), rows)) == [Defect.WRONG_LOG_SIZE]


def test_a_log_that_does_not_live_is_not_judged() -> None:
    rows = index([10, 10], [2, 1])[1:]
    walk = LogWalk(LOG)
    assert [*walk.take(IndexPage(None, tuple(rows), END)), *walk.end()] == []


def test_only_appends_keep_the_sums_exact() -> None:
    rows = index([10, 10, 10, 10], [1, 2, 3, 4])
    before, after = state(rows[:3]), state(rows)

    def walk_through(last: LogState, rows: list[IndexedRow]) -> LogWalk:
        walk = LogWalk(LOG)
        list(walk.take(IndexPage(before, tuple(rows[:2]), 20)))
        list(walk.take(IndexPage(last, tuple(rows[2:]), END)))
        return walk

    appended = walk_through(after, rows)
    assert appended.saw_appends_only
    assert list(appended.end()) == []
    swapped = walk_through(after._replace(rows=3), rows)
    assert not swapped.saw_appends_only
    trimmed = walk_through(after._replace(log_start_offset=10, rows=3, size_bytes=300), rows)
    assert not trimmed.saw_appends_only
    wrong = walk_through(after._replace(size_bytes=401), rows)
    assert not wrong.saw_appends_only
