"""The choice of rows to merge: properties for all logs, and each rule by itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.merge import plan
from pipeline.merge.options import MergeOptions
from pipeline.merge.plan import MergeTask, Planner, even
from proxy.coordinator.interface import Row
from tests.support.transactions import marker_row

TARGET = 1_000
OPTIONS = MergeOptions(target_bytes=TARGET, task_bytes=3_000, min_age_ms=100)
NOW_MS = 10_000
OLD_MS = NOW_MS - 100
SEGMENTS = [uuid.UUID(int=number).bytes for number in range(200)]


def log_of(runs: Sequence[tuple[int, Sequence[int]]], *, merged: Sequence[int] = ()) -> list[Row]:
    """Build a log of runs: (number of the segment, lengths of its rows). `merged` lists segments that a merge wrote."""
    rows: list[Row] = []
    offset = 0
    for segment, lengths in runs:
        position = 1
        for length in lengths:
            in_place = segment in merged
            rows.append(
                Row(offset, offset + 9, SEGMENTS[segment], position, length, 5, OLD_MS, offsets_in_place=in_place)
            )
            offset += 10
            position += length
    return rows


def small(number: int, length: int = 100, first: int = 0) -> list[Row]:
    """Return this many segments with a row each."""
    return log_of([(first + at, [length]) for at in range(number)])


def planned(
    logs: Sequence[Sequence[Row]], options: MergeOptions = OPTIONS, rewrite: Sequence[int] = ()
) -> list[MergeTask]:
    planner = Planner(options, now_ms=NOW_MS, rewrite={SEGMENTS[number] for number in rewrite})
    return list(planner.tasks("topic", b"t" * 16, ((at, iter(rows)) for at, rows in enumerate(logs))))


def sizes(tasks: Sequence[MergeTask]) -> list[list[int]]:
    return [[output.size_bytes for output in task.outputs] for task in tasks]


def with_markers(rows: Sequence[Row]) -> list[Row]:
    """Put a marker of a transaction after every row."""
    mixed: list[Row] = []
    for row in rows:
        base = len(mixed) // 2 + row.base_offset
        moved = row._replace(base_offset=base, last_offset=base + row.last_offset - row.base_offset)
        mixed += [moved, marker_row(moved.last_offset + 1)]
    return mixed


# For all logs


@st.composite
def logs_of_many_kinds(draw: st.DrawFn) -> list[list[Row]]:
    numbers = count()
    of_partition = st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(1, 700), min_size=1, max_size=4)), max_size=12
    )
    logs = []
    for runs in draw(st.lists(of_partition, min_size=1, max_size=4)):
        numbered = [(next(numbers), in_place, lengths) for in_place, lengths in runs]
        logs.append(
            log_of(
                [(number, lengths) for number, _, lengths in numbered],
                merged=[number for number, in_place, _ in numbered if in_place],
            )
        )
    return logs


@given(logs_of_many_kinds(), st.integers(2, 5), st.sets(st.integers(0, 47), max_size=3))
def test_every_plan(logs: list[list[Row]], min_inputs: int, rewrite: set[int]) -> None:
    options = MergeOptions(target_bytes=TARGET, task_bytes=3_000, min_age_ms=100, min_inputs=min_inputs)
    planner = Planner(options, now_ms=NOW_MS, rewrite={SEGMENTS[number] for number in rewrite})
    tasks = list(planner.tasks("topic", b"t" * 16, enumerate(logs)))
    outputs = [output for task in tasks for output in task.outputs]

    for partition, rows in enumerate(logs):
        chosen = [
            row for output in outputs for part in output.parts if part.partition == partition for row in part.rows
        ]
        assert len(set(chosen)) == len(chosen)
        assert sorted(chosen) == [row for row in rows if row in set(chosen)]
        for row in rows:
            if row.segment in {SEGMENTS[number] for number in rewrite}:
                assert row in chosen
    for output in outputs:
        for part in output.parts:
            first = logs[part.partition].index(part.rows[0])
            assert list(part.rows) == logs[part.partition][first : first + len(part.rows)]
        assert len(output.segments) >= min_inputs or any(SEGMENTS[number] in output.segments for number in rewrite)
        assert output.size_bytes < 2 * TARGET + 2 * 700
        if len(output.parts) == 1 and len(outputs) > 1 and output is not outputs[-1]:
            assert output.size_bytes >= TARGET
    assert sum(output.size_bytes < TARGET for output in outputs) <= 1
    for task in tasks:
        assert len(task.outputs) == 1 or task.size_bytes <= options.task_bytes + TARGET // 4
    everything = sum(row.length for rows in logs for row in rows)
    assert sum(task.size_bytes for task in tasks) + planner.left.all_bytes == everything


def after(logs: Sequence[Sequence[Row]], tasks: Sequence[MergeTask], numbers: Iterator[int]) -> list[list[Row]]:
    """The logs when the tasks are done, with a new row for each part."""
    new: dict[Row, Row | None] = {}
    for task in tasks:
        for output in task.outputs:
            segment = uuid.UUID(int=1_000 + next(numbers)).bytes
            position = 1
            for part in output.parts:
                length = sum(row.length for row in part.rows)
                merged = Row(
                    part.rows[0].base_offset,
                    part.rows[-1].last_offset,
                    segment,
                    position,
                    length,
                    5,
                    OLD_MS,
                    offsets_in_place=True,
                )
                new.update(dict.fromkeys(part.rows[1:]))
                new[part.rows[0]] = merged
                position += length
    return [[kept for row in rows if (kept := new.get(row, row)) is not None] for rows in logs]


@given(logs_of_many_kinds())
def test_run_again_there_is_less_and_soon_nothing_to_do(logs: list[list[Row]]) -> None:
    numbers = count()
    objects = len({row.segment for rows in logs for row in rows})
    while tasks := planned(logs):
        logs = after(logs, tasks, numbers)
        left = len({row.segment for rows in logs for row in rows})
        assert left < objects
        objects = left


# Rule by rule


def test_objects_of_one_partition_are_even_and_not_below_the_target() -> None:
    assert sizes(planned([small(35)])) == [[1200, 1200], [1100]]
    assert sizes(planned([small(19)])) == [[1900]]
    assert sizes(planned([small(20)])) == [[1000, 1000]]


def test_small_partitions_share_an_object_and_large_ones_do_not() -> None:
    tasks = planned([small(4, first=0), small(4, first=10), small(12, first=20), small(4, first=40)])
    assert [[[part.partition for part in output.parts] for output in task.outputs] for task in tasks] == [
        [[2], [0, 1, 3]]
    ]
    assert sizes(tasks) == [[1200, 1200]]


def test_a_long_partition_is_cut_into_tasks_that_leave_enough() -> None:
    assert sizes(planned([small(95)])) == [[1000, 1000, 1000]] * 2 + [[1200, 1200], [1100]]


def test_objects_that_are_a_little_above_the_target_still_fit_a_task() -> None:
    assert sizes(planned([small(190, length=34)])) == [[1020, 1020, 1020], [1156, 1122], [1122]]


def test_rows_are_taken_as_they_are_needed() -> None:
    taken = 0

    def rows() -> Iterator[Row]:
        nonlocal taken
        for row in small(200):
            taken += 1
            yield row

    tasks = Planner(OPTIONS, now_ms=NOW_MS).tasks("topic", b"t" * 16, [(0, rows())])
    next(tasks)
    assert taken < 100


def test_young_rows_and_all_later_ones_are_left() -> None:
    rows = small(15)
    rows[11] = rows[11]._replace(append_time_ms=OLD_MS + 1)
    assert sizes(planned([rows])) == [[1100]]


def test_large_runs_are_left_and_part_what_is_around_them() -> None:
    rows = log_of([*((at, [100]) for at in range(4)), (4, [250, 250]), *((at, [200]) for at in range(5, 9))])
    (task,) = planned([rows])
    assert [[part.rows for part in output.parts] for output in task.outputs] == [
        [tuple(rows[:4]), tuple(rows[6:])],
    ]


def test_a_merge_that_replaces_too_few_objects_is_skipped() -> None:
    planner = Planner(OPTIONS, now_ms=NOW_MS)
    assert list(planner.tasks("topic", b"t" * 16, [(0, small(3))])) == []
    assert planner.left.few_bytes == 300
    assert sizes(planned([small(4)])) == [[400]]
    assert sizes(planned([small(2), small(2, first=2)])) == [[400]]
    assert planned([small(2), small(2)]) == []  # the same two objects


def test_a_merged_run_is_left_until_as_many_bytes_follow_it() -> None:
    def with_new(number: int) -> list[Row]:
        return log_of([(99, [450]), *((at, [100]) for at in range(number))], merged=[99])

    assert planned([with_new(3)]) == []
    assert sizes(planned([with_new(4)])) == [[400]]
    assert sizes(planned([with_new(5)])) == [[950]]


def test_an_object_that_has_to_be_rewritten_is_whatever_the_other_rules_say() -> None:
    rows = log_of([(0, [600]), (1, [900]), (2, [100])], merged=[0, 1])
    assert planned([rows]) == []
    (task,) = planned([rows], rewrite=[1])
    assert [row for part in task.outputs[0].parts for row in part.rows] == rows[1:]


def test_many_tiny_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_ROWS_PER_TASK", 10)
    tasks = planned([small(45, length=1)])
    assert all(sum(output.rows for output in task.outputs) <= 15 for task in tasks)
    assert sum(task.size_bytes for task in tasks) >= 45 - 3


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(1, 2_000))
def test_even_pieces(lengths: list[int], target: int) -> None:
    rows = log_of([(0, lengths)])
    pieces = list(even(rows, target))
    assert [row for piece in pieces for row in piece] == rows
    sizes = [sum(row.length for row in piece) for piece in pieces]
    if sum(lengths) >= target:
        assert min(sizes) >= target
        # At most one more piece would have fitted, except for rows that cannot be cut.
        assert max(sizes) < 2 * target + 2 * max(lengths)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_bytes": 0},
        {"target_bytes": 2, "task_bytes": 1},
        {"task_bytes": (1 << 30) + 1},
        {"min_age_ms": -1},
        {"max_age_ms": -1},
        {"min_inputs": 1},
    ],
)
def test_options_out_of_range(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        MergeOptions(**wrong)  # type: ignore[arg-type]


# Transactions


def test_markers_go_along_with_the_rows_around_them() -> None:
    rows = with_markers(small(12))
    (task,) = planned([rows])
    assert [part.rows for output in task.outputs for part in output.parts] == [tuple(rows)]
    assert task.outputs[0].segments == set(SEGMENTS[:12])


def test_markers_count_as_no_object_that_is_replaced() -> None:
    assert planned([with_markers(small(OPTIONS.min_inputs - 1))]) == []
    assert planned([[marker_row(offset) for offset in range(2_000)]]) == []


def test_markers_between_merged_runs_do_not_have_these_rewritten() -> None:
    rows = with_markers(log_of([(0, [450]), (1, [300]), *((at, [10]) for at in range(2, 8))], merged=[0, 1]))
    (task,) = planned([rows])
    assert [part.rows for output in task.outputs for part in output.parts] == [tuple(rows[3:])]
