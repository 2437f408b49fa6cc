"""Rows with which a merge or a compaction replaces others; model and real coordinator."""

from __future__ import annotations

import os

import pytest

from proxy.coordinator.interface import (
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    Coordinator,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
    Row,
    SegmentUse,
)
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP, Swap, SwapAnswer

TOPIC = bytes(range(16))
REPLACED, CHANGED, GONE, REFUSED, LATE = SwapAnswer


@pytest.fixture
async def coordinator(make) -> Coordinator:
    made: Coordinator = make()
    await made.create_logs(TOPIC, range(3))
    return made


async def append(
    coordinator: Coordinator, *timestamps: int, partition: int = 0, records: int = 10, log_append_time: bool = False
) -> list[bytes]:
    """Append a segment, and so a row, for each timestamp."""
    segments = []
    for timestamp in timestamps:
        segments.append(os.urandom(16))
        batch = ProposedBatch(100, records, timestamp, NO_PRODUCER_ID, -1, -1)
        run = PartitionRun(TOPIC, partition, 1, (batch,), log_append_time=log_append_time)
        (answer,) = await coordinator.commit(segments[-1], [run])
        assert answer.error_code == 0
    return segments


async def rows(coordinator: Coordinator, partition: int = 0) -> tuple[Row, ...]:
    (log,) = await coordinator.describe(TOPIC, [partition])
    assert log is not None
    (answer,) = await coordinator.find([FindRequest(TOPIC, partition, log.log_start_offset, 1 << 40)])
    return answer.rows


def merged(old: tuple[Row, ...], **changes: int | bytes) -> Row:
    """Return the row with which a merge replaces rows."""
    new = Row(
        old[0].base_offset,
        old[-1].last_offset,
        os.urandom(16),
        1,
        sum(row.length for row in old),
        max(row.max_timestamp_ms for row in old),
        max(row.append_time_ms for row in old),
        offsets_in_place=True,
    )
    return new._replace(**changes)


def swap(old: tuple[Row, ...], new: Row | None, partition: int = 0) -> Swap:
    return Swap(TOPIC, partition, old, new)


async def test_a_new_row_replaces_neighbours(coordinator) -> None:
    segments = await append(coordinator, 1, 2, 3, 4, 5)
    before = await rows(coordinator)
    new = merged(before[1:4], position=77)
    assert await coordinator.rows.replace([swap(before[1:4], new)]) == [REPLACED]
    assert await rows(coordinator) == (before[0], new, before[4])
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log == (0, 50, 500, 3, 50)
    assert await coordinator.segment_use([new.segment, segments[1]]) == [(300, 1), (0, 0)]
    assert set(await coordinator.garbage(0, 10)) == set(segments[1:4])
    await append(coordinator, 6)
    assert [row.base_offset for row in await rows(coordinator)] == [0, 10, 40, 50]


async def test_a_repeated_swap_is_answered_as_the_first_time(coordinator) -> None:
    await append(coordinator, 1, 2, 3)
    old = await rows(coordinator)
    new = merged(old[:2])
    for _ in range(3):
        assert await coordinator.rows.replace([swap(old[:2], new)]) == [REPLACED]
    assert await coordinator.segment_use([new.segment]) == [(200, 1)]
    for _ in range(3):
        assert await coordinator.rows.replace([swap(old[2:], None)]) == [REPLACED]
    assert await rows(coordinator) == (new,)


async def test_only_one_of_two_swaps_of_the_same_rows_succeeds(coordinator) -> None:
    await append(coordinator, 1, 2, 3, 4)
    old = await rows(coordinator)
    first, second = merged(old[:3]), merged(old[1:])
    assert await coordinator.rows.replace([swap(old[:3], first), swap(old[1:], second)]) == [REPLACED, CHANGED]
    assert await rows(coordinator) == (first, old[3])
    assert await coordinator.segment_use([second.segment]) == [(0, 0)]
    assert await coordinator.rows.replace([swap(old[1:2], None)]) == [CHANGED]


async def test_a_swap_may_replace_the_row_of_an_earlier_swap(coordinator) -> None:
    await append(coordinator, 1, 2, 3, 4)
    old = await rows(coordinator)
    first, second = merged(old[:2]), merged(old[2:])
    both = merged((first, second))
    swaps = [swap(old[:2], first), swap(old[2:], second), swap((first, second), both)]
    assert await coordinator.rows.replace(swaps) == [REPLACED] * 3
    assert await rows(coordinator) == (both,)
    assert set(await coordinator.garbage(0, 10)) == {row.segment for row in (*old, first, second)}


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 1},
        {"last_offset": 8},
        {"segment": bytes(16)},
        {"position": 2},
        {"length": 99},
        {"max_timestamp_ms": 2},
        {"append_time_ms": 3},
        {"log_append_time": True},
        {"offsets_in_place": True},
    ],
)
async def test_rows_that_differ_in_anything_are_left_alone(coordinator, changes) -> None:
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    changed = (old[0]._replace(**changes), old[1])
    assert await coordinator.rows.replace([swap(changed, merged(changed))]) == [CHANGED]
    assert await rows(coordinator) == old


async def test_rows_that_are_not_neighbours_are_left_alone(coordinator) -> None:
    await append(coordinator, 1, 2, 3)
    old = await rows(coordinator)
    apart = (old[0], old[2])
    assert await coordinator.rows.replace([swap(apart, merged(apart))]) == [CHANGED]
    assert await rows(coordinator) == old


async def test_rows_that_retention_trimmed_count_as_changed(coordinator) -> None:
    await append(coordinator, 1, 2, 3)
    old = await rows(coordinator)
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, 10)])
    new = merged(old)
    assert await coordinator.rows.replace([swap(old, new), swap(old[:1], None)]) == [CHANGED, CHANGED]
    assert await rows(coordinator) == old[1:]
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, 15)])
    new = merged(old[1:])
    assert await coordinator.rows.replace([swap(old[1:], new)]) == [REPLACED], (
        "its first row is still there, as a whole"
    )
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log == (15, 30, 200, 1, 30)
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, -1)])
    assert await coordinator.rows.replace([swap(old[1:], new)]) == [CHANGED]


async def test_a_new_row_that_ends_before_the_log_start_is_not_kept(coordinator) -> None:
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, 5)])
    new = merged(old[:1], last_offset=4)
    for _ in range(2):
        assert await coordinator.rows.replace([swap(old[:1], new)]) == [REPLACED]
        assert [one.row for one in (await coordinator.rows.index_page(TOPIC, 0, 0)).rows] == [old[1]]
        assert await coordinator.segment_use([new.segment]) == [(0, 0)]
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log == (5, 20, 100, 1, 20)


async def test_a_deleted_log_is_gone(coordinator) -> None:
    await append(coordinator, 1)
    await append(coordinator, 1, partition=1)
    old, other = await rows(coordinator), await rows(coordinator, 1)
    await coordinator.delete_logs(TOPIC, [0])
    new = merged(other)
    answers = await coordinator.rows.replace([swap(old, merged(old)), swap(other, new, 1), swap(old, merged(old), 7)])
    assert answers == [GONE, REPLACED, GONE]
    await coordinator.create_logs(TOPIC, [0])
    assert await coordinator.rows.replace([swap(old, merged(old))]) == [CHANGED]


async def test_a_tombstoned_segment_takes_no_rows_and_garbage_that_does_is_none_any_more(coordinator) -> None:
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    new = merged(old)
    assert await coordinator.tombstone([new.segment]) == [new.segment]
    assert await coordinator.rows.replace([swap(old, new)]) == [REFUSED]
    assert await rows(coordinator) == old
    (once,) = await append(coordinator, 3, partition=1)
    await coordinator.delete_records([DeleteRequest(TOPIC, 1, -1)])
    assert await coordinator.garbage(0, 10) == [once]
    new = new._replace(segment=once)
    assert await coordinator.rows.replace([swap(old, new)]) == [REPLACED]
    assert await coordinator.tombstone([once]) == []
    assert once not in await coordinator.garbage(0, 10)


async def test_a_swap_that_comes_too_late_is_not_done(coordinator) -> None:
    """Its object may be gone by then, and its tombstone removed."""
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    new = merged(old)
    await coordinator.tombstone([new.segment])
    await coordinator.release([new.segment])
    assert await coordinator.rows.replace([swap(old, new), swap(old, None, 1)], not_after_ms=1) == [LATE, LATE]
    assert await rows(coordinator) == old
    assert await coordinator.garbage(0, 10) == []
    assert await coordinator.rows.replace([swap(old, new)], not_after_ms=1 << 45) == [REPLACED]


async def test_readers_find_their_way_over_what_is_left_out(coordinator) -> None:
    """Rows of 0 to 9, 10 to 19, …: the second is smaller; the fourth and the last are left out."""
    await append(coordinator, 1, 2, 3, 4, 5, 6)
    old = await rows(coordinator)
    small = merged(old[1:2], base_offset=13, last_offset=15, length=40)
    swaps = [swap(old[1:2], small), swap(old[3:4], None), swap(old[5:], None)]
    assert await coordinator.rows.replace(swaps) == [REPLACED] * 3
    for offset, first in ((9, 0), (10, 13), (15, 13), (16, 20), (30, 40), (39, 40), (49, 40)):
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, offset, 1)])
        assert (answer.error_code, answer.rows[0].base_offset) == (0, first), offset
    for offset in (50, 59, 60):
        assert await coordinator.find([FindRequest(TOPIC, 0, offset, 1)]) == [LogAnswer(0, (), 0, 60, 60)]
    (log,) = await coordinator.describe(TOPIC, [0])
    assert log == (0, 60, 340, 4, 60)
    await append(coordinator, 7)
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 50, 1)])
    assert answer.rows[0].base_offset == 60
    starts = []
    for size in (301, 300, 200, 1, 0):
        (answer,) = await coordinator.retain([RetainRequest(TOPIC, 0, -1, size, False)])
        starts.append(answer.log_start_offset)
    assert starts == [10, 16, 30, 50, 70]


async def test_times_are_found_though_the_newest_record_was_left_out(coordinator) -> None:
    await append(coordinator, 5, 90, 7, 8, 80)
    old = await rows(coordinator)
    low = merged(old[1:2], max_timestamp_ms=6)
    assert await coordinator.rows.replace([swap(old[1:2], low), swap(old[4:], None)]) == [REPLACED] * 2
    asked = [5, 6, 7, 8, 9, 80, 90, MAX_TIMESTAMP]
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 0, one) for one in asked])
    assert [(one.offset, one.timestamp_ms) for one in answers] == [
        (0, 5),
        (10, 6),
        (20, 7),
        (30, 8),
        (-1, -1),
        (-1, -1),
        (-1, -1),
        (30, 8),
    ]
    await append(coordinator, 9)
    (answer,) = await coordinator.list_offsets([ListRequest(TOPIC, 0, MAX_TIMESTAMP)])
    assert answer == (0, 50, 9)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": -1},
        {"last_offset": 20},
        {"base_offset": 12, "last_offset": 11},
        {"max_timestamp_ms": 3},
        {"offsets_in_place": False},
        {"log_append_time": True},
        {"position": 2**32},
    ],
)
async def test_a_new_row_that_would_damage_the_index_is_rejected(make_coordinator, changes) -> None:
    coordinator = make_coordinator()
    await coordinator.create_logs(TOPIC, [0])
    await append(coordinator, 1, 2)
    old = await rows(coordinator)
    with pytest.raises(ValueError, match=r"row|packed"):
        await coordinator.rows.replace([swap(old, merged(old)), swap(old, merged(old, **changes))])
    assert await rows(coordinator) == old, "nothing was done"


async def test_old_rows_must_be_some_in_order_and_not_too_many(make_coordinator) -> None:
    coordinator = make_coordinator()
    row = Row(0, 0, bytes(16), 1, 1, 0, 0)
    many = tuple(row._replace(base_offset=at, last_offset=at) for at in range(MAX_ROWS_PER_SWAP + 1))
    for old in ((), many, many[1::-1], (row, row)):
        with pytest.raises(ValueError, match="rows"):
            await coordinator.rows.replace([swap(old, None)])
    assert await coordinator.rows.replace([swap(many[1:], None)]) == [GONE]
    assert await coordinator.rows.replace([]) == []


async def test_how_far_a_log_was_compacted_only_rises_and_goes_with_it(coordinator) -> None:
    await append(coordinator, 1, 2, 3)
    logs = [(TOPIC, 0), (TOPIC, 1), (TOPIC, 9)]
    assert await coordinator.rows.compacted(logs) == [0, 0, 0]
    await coordinator.rows.mark_compacted([(TOPIC, 0, 20), (TOPIC, 9, 5)])
    await coordinator.rows.mark_compacted([(TOPIC, 0, 10), (TOPIC, 1, 1)])
    assert await coordinator.rows.compacted(logs) == [20, 0, 0], "it is within the log"
    await coordinator.rows.mark_compacted([(TOPIC, 0, 30)])
    assert await coordinator.rows.compacted(logs) == [30, 0, 0]
    await coordinator.delete_logs(TOPIC, [0])
    await coordinator.create_logs(TOPIC, [0])
    assert await coordinator.rows.compacted(logs) == [0, 0, 0]


async def test_the_whole_index_is_returned(coordinator) -> None:
    await append(coordinator, 5, 3, 9)
    await append(coordinator, 1, log_append_time=True)
    page = await coordinator.rows.index_page(TOPIC, 0, 0)
    assert page.log is not None
    assert page.log[:4] == (0, 40, 400, 4)
    assert [one.row for one in page.rows] == list(await rows(coordinator))
    assert [one.running_maximum_ms for one in page.rows[:3]] == [5, 5, 9]
    assert page.rows[3].running_maximum_ms == page.log.max_timestamp_ms == page.rows[3].row.append_time_ms
    assert page.next_offset == -1
    page = await coordinator.rows.index_page(TOPIC, 0, 15)
    assert [one.row.base_offset for one in page.rows] == [10, 20, 30]
    assert await coordinator.rows.index_page(TOPIC, 2, 0) == ((0, 0, 0, 0, 1 - 2**53, 0, -1), (), -1, (), ())
    assert await coordinator.rows.index_page(TOPIC, 9, 0) == (None, (), -1, (), ())


async def test_a_new_row_is_packed_and_returned_unchanged(coordinator) -> None:
    for timestamp in range(80):
        await append(coordinator, timestamp)
    old = await rows(coordinator)
    swaps = [swap(old[at : at + 2], merged(old[at : at + 2])) for at in range(0, 80, 2)]
    assert await coordinator.rows.replace(swaps) == [REPLACED] * 40
    await coordinator.pack_rows([(TOPIC, 0)], 0)
    assert await rows(coordinator) == tuple(one.new for one in swaps)


async def test_use_is_set_right_only_where_it_is_what_was_expected(coordinator) -> None:
    (segment,) = await append(coordinator, 1)
    (use,) = await coordinator.segment_use([segment])
    assert use == SegmentUse(100, 1)
    for shard in range(3):
        assert not await coordinator.rows.correct_use(shard, segment, SegmentUse(100, 2), SegmentUse(7, 7))
    assert await coordinator.segment_use([segment]) == [use]
