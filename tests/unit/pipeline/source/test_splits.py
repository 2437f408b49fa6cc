from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.source.splits import LogRange, arrange

ID = b"i" * 16
PIECES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5_000)), max_size=12).map(
    lambda sizes: [
        LogRange("t", ID, partition, 10 * partition, 10 * partition + count, size)
        for partition, (count, size) in enumerate(sizes)
    ]
)


def offsets(ranges: list[LogRange]) -> list[tuple[int, int]]:
    return [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]


@given(PIECES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 50), st.integers(1, 10_000))
def test_every_offset_is_in_one_task(
    pieces: list[LogRange], min_partitions: int | None, max_records: int | None, split_bytes: int
) -> None:
    tasks = arrange(pieces, split_bytes=split_bytes, min_partitions=min_partitions, max_records=max_records)
    assert offsets([one for task in tasks for one in task]) == offsets(pieces)
    assert all(one.start < one.end for task in tasks for one in task)
    if max_records is not None:
        assert all(sum(one.end - one.start for one in task) <= max_records for task in tasks)
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, len(offsets(pieces)))


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    pieces = [LogRange("t", ID, number, 0, 10, size) for number, size in enumerate([60, 10, 10, 4, 3, 25, 1])]
    tasks = arrange(pieces, split_bytes=100, min_partitions=None, max_records=None)
    assert [[one.partition for one in task] for task in tasks] == [[0], [1, 2, 3], [4], [5], [6]]


def test_the_largest_is_cut_where_more_tasks_are_wanted() -> None:
    pieces = [LogRange("t", ID, 0, 0, 1_000, 500), LogRange("t", ID, 1, 5, 15, 5)]
    tasks = arrange(pieces, split_bytes=1 << 30, min_partitions=4, max_records=None)
    assert [(one.partition, one.start, one.end) for (one,) in tasks] == [
        (0, 0, 250), (0, 250, 500), (0, 500, 750), (0, 750, 1_000), (1, 5, 15),
    ]  # fmt: skip
