"""The contract of every coordinator, tested with the model in memory and the real one on a real server."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing

import pytest

from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FindRequest,
    ListRequest,
    LogAnswer,
    OffsetAnswer,
    PartitionRun,
)
from tests.integration.coordinator.contract import (
    LAST_SEQUENCE,
    OUT_OF_ORDER,
    TOPIC,
    commit,
    described,
    idempotent,
    plain,
    reported,
)

# Logs


async def test_a_log_that_was_not_created_is_unknown_everywhere(make) -> None:
    coordinator = make()
    (answer,) = await coordinator.commit(bytes(16), [PartitionRun(TOPIC, 9, 1, (plain(),))])
    assert answer == (TOPIC, 9, 3, (), -1, -1)
    assert await coordinator.find([FindRequest(TOPIC, 9, 0, 1)]) == [LogAnswer(3, (), -1, -1, -1)]
    assert await coordinator.list_offsets([ListRequest(TOPIC, 9, LATEST_TIMESTAMP)]) == [(3, -1, -1)]
    assert await coordinator.describe(TOPIC, [9]) == [None]


async def test_creating_a_live_log_leaves_it_unchanged(coordinator) -> None:
    await commit(coordinator, plain(5))
    await coordinator.create_logs(TOPIC, [0, 1])
    assert await described(coordinator) == (0, 5, 100, 1, 5)


async def test_a_deleted_log_is_dead_and_the_others_live(coordinator) -> None:
    await commit(coordinator, plain(5))
    await commit(coordinator, plain(5), partition=1)
    await coordinator.delete_logs(TOPIC, [0])
    await coordinator.delete_logs(TOPIC, [0])
    assert await coordinator.describe(TOPIC, [0, 1]) == [None, (0, 5, 100, 1, 5)]
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (plain(),))])
    assert answer.error_code == 3


async def test_a_recreated_log_starts_empty(coordinator) -> None:
    await commit(coordinator, idempotent(0, 5))
    await coordinator.delete_logs(TOPIC, [0])
    await coordinator.create_logs(TOPIC, [0])
    assert await described(coordinator) == (0, 0, 0, 0, 0)
    assert reported(await commit(coordinator, idempotent(0, 5))) == [(0, 0, False)]


# Offsets and rows


async def test_offsets_are_dense_and_a_run_is_one_row(coordinator) -> None:
    segment = os.urandom(16)
    assert reported(await commit(coordinator, plain(3), plain(2, timestamp=9_000), segment=segment)) == [
        (0, 0, False),
        (0, 3, False),
    ]
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1)])
    (row,) = answer.rows
    assert (row.base_offset, row.last_offset, row.segment, row.position, row.length) == (0, 4, segment, 1, 200)
    assert row.max_timestamp_ms == 9_000
    assert reported(await commit(coordinator, plain())) == [(0, 5, False)]


async def test_a_rejected_batch_splits_a_run_into_two_rows_and_stops_nothing(coordinator) -> None:
    answers = await commit(coordinator, plain(3), idempotent(7), plain(2))
    # The log holds records by now, so the unknown producer may start anywhere.
    assert reported(answers) == [(0, 0, False), (0, 3, False), (0, 4, False)]
    answers = await commit(coordinator, plain(), idempotent(3), plain(2))
    assert reported(answers) == [(0, 6, False), (OUT_OF_ORDER, -1, False), (0, 7, False)]
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 6, 10_000)])
    assert [(row.base_offset, row.last_offset, row.position, row.length) for row in answer.rows] == [
        (6, 6, 1, 100),
        (7, 8, 201, 100),
    ]
    assert await described(coordinator) == (0, 9, 500, 3, 9)


async def test_the_append_time_is_the_stores_clock(coordinator) -> None:
    (answer,) = await commit(coordinator, plain(timestamp=5))
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1)])
    assert answer.append_time_ms == -1, "under CreateTime it is not returned"
    assert found.rows[0].append_time_ms > 1_600_000_000_000
    assert (found.rows[0].max_timestamp_ms, found.rows[0].log_append_time) == (5, False)


async def test_under_log_append_time_the_time_of_records_is_that_of_the_append(coordinator) -> None:
    first = idempotent(0, 2)
    await commit(coordinator, plain(timestamp=2**62))
    (stamped,) = await commit(coordinator, first, partition=1, log_append_time=True)
    await asyncio.sleep(0.002)
    again, later = await commit(coordinator, first, idempotent(2, 1), partition=1, log_append_time=True)
    assert stamped.append_time_ms > 1_600_000_000_000
    assert again == stamped._replace(duplicate=True), "with the time of the first"
    assert later.append_time_ms > stamped.append_time_ms
    await commit(coordinator, plain(timestamp=7), partition=1)
    before, found = await coordinator.find([FindRequest(TOPIC, 0, 0, 10_000), FindRequest(TOPIC, 1, 0, 10_000)])
    assert [row.log_append_time for row in (*before.rows, *found.rows)] == [False, True, True, False]
    assert [row.max_timestamp_ms for row in found.rows] == [stamped.append_time_ms, later.append_time_ms, 7]
    assert [row.append_time_ms for row in found.rows][:2] == [stamped.append_time_ms, later.append_time_ms]
    wanted = stamped.append_time_ms, stamped.append_time_ms + 1, later.append_time_ms + 1
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 1, timestamp) for timestamp in wanted])
    assert answers == [(0, 0, stamped.append_time_ms), (0, 2, later.append_time_ms), (0, -1, -1)]


async def test_an_answer_comes_for_each_run_in_order(coordinator) -> None:
    runs = [PartitionRun(TOPIC, partition, 1, (plain(partition + 1),)) for partition in (3, 9, 0, 2, 8, 1)]
    answers = await coordinator.commit(os.urandom(16), runs)
    assert [(answer.partition, answer.error_code, answer.high_watermark) for answer in answers] == [
        (3, 0, 4),
        (9, 3, -1),
        (0, 0, 1),
        (2, 0, 3),
        (8, 3, -1),
        (1, 0, 2),
    ]


async def test_timestamps_that_no_clock_shows_do_no_harm(coordinator) -> None:
    await commit(coordinator, plain(timestamp=2**63 - 1), plain(timestamp=-(2**63)))
    await commit(coordinator, plain(timestamp=-(2**63)), partition=1)
    (first, second) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1), FindRequest(TOPIC, 1, 0, 1)])
    assert first.rows[0].max_timestamp_ms == 2**53 - 1
    assert second.rows[0].max_timestamp_ms == -(2**53) + 1


# Idempotence by segment


async def test_a_repeated_commit_gets_the_same_answers_and_writes_nothing(coordinator) -> None:
    segment = os.urandom(16)
    runs = [PartitionRun(TOPIC, partition, 1, (plain(2), idempotent(0), idempotent(5))) for partition in range(4)]
    first = await coordinator.commit(segment, runs)
    before = await coordinator.describe(TOPIC, range(4))
    assert await coordinator.commit(segment, runs) == first
    assert await coordinator.commit(segment, runs[2:]) == first[2:]
    assert [(await coordinator.commit(segment, [run]))[0] for run in reversed(runs)] == first[::-1]
    assert await coordinator.describe(TOPIC, range(4)) == before


async def test_a_retry_with_more_runs_adds_the_missing_ones(coordinator) -> None:
    segment = os.urandom(16)
    runs = [PartitionRun(TOPIC, partition, 1, (plain(2),)) for partition in range(4)]
    half = await coordinator.commit(segment, runs[1:3])
    assert (await coordinator.commit(segment, runs))[1:3] == half
    assert [await described(coordinator, partition) for partition in range(4)] == [(0, 2, 100, 1, 2)] * 4


async def test_a_retry_returns_the_current_high_watermark(coordinator) -> None:
    segment = os.urandom(16)
    await commit(coordinator, plain(), segment=segment)
    await commit(coordinator, plain(4))
    (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (plain(),))])
    assert (answer.batches[0].base_offset, answer.high_watermark) == (0, 5)


# Find


async def test_find_from_every_offset(coordinator) -> None:
    for records in (3, 1, 4):
        await commit(coordinator, plain(records))
    bases = {0: 0, 1: 0, 2: 0, 3: 3, 4: 4, 5: 4, 6: 4, 7: 4}
    for offset, base in bases.items():
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, offset, 1)])
        assert [row.base_offset for row in answer.rows] == [base]
        assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, 0, 8)
    assert await coordinator.find([FindRequest(TOPIC, 0, 8, 1)]) == [LogAnswer(0, (), 0, 8, 8)]
    for offset in (-1, 9, 2**62):
        assert await coordinator.find([FindRequest(TOPIC, 0, offset, 1)]) == [LogAnswer(1, (), 0, 8, 8)]


async def test_find_stops_when_the_budget_is_reached(coordinator) -> None:
    for _ in range(100):
        await commit(coordinator, plain(length=10))
    for budget, rows in ((0, 1), (1, 1), (10, 1), (11, 2), (85, 9), (905, 91), (10_000, 100)):
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 0, budget)])
        assert [row.base_offset for row in answer.rows] == list(range(rows))


# ListOffsets


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (EARLIEST_TIMESTAMP, 0, -1),
        (LATEST_TIMESTAMP, 6, -1),
        (MAX_TIMESTAMP, 3, 50),
        (0, 0, 10),
        (10, 0, 10),
        (11, 1, 30),
        (30, 1, 30),
        (31, 3, 50),
        (50, 3, 50),
        (51, -1, -1),
    ],
)
async def test_list_offsets(coordinator, timestamp: int, offset: int, found: int) -> None:
    for newest in (10, 30, 20, 50, 50, 40):
        await commit(coordinator, plain(timestamp=newest))
    assert await coordinator.list_offsets([ListRequest(TOPIC, 0, timestamp)]) == [OffsetAnswer(0, offset, found)]


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 33])
async def test_list_offsets_finds_each_of_many_rows(coordinator, rows: int) -> None:
    for number in range(rows):
        await commit(coordinator, plain(timestamp=10 * number))
    requests = [ListRequest(TOPIC, 0, timestamp) for timestamp in range(10 * rows - 9)]
    answers = await coordinator.list_offsets(requests)
    assert answers == [(0, -(-request.timestamp_ms // 10), -(-request.timestamp_ms // 10) * 10) for request in requests]


@pytest.mark.parametrize(
    ("timestamp", "from_offset", "offset", "found"),
    [
        (10, 1, 1, 10),
        (10, 2, 2, 30),
        (11, 3, 3, 30),
        (31, 3, 6, 50),
        (50, 7, 7, 50),
        (50, 8, 8, 50),
        (50, 10, -1, -1),
        (40, 10, 10, 40),
        (10, 12, -1, -1),
        (MAX_TIMESTAMP, 2, 6, 50),
        (MAX_TIMESTAMP, 9, 9, 50),
        (MAX_TIMESTAMP, 10, 10, 40),
        (MAX_TIMESTAMP, 12, -1, -1),
        (EARLIEST_TIMESTAMP, 4, 0, -1),
        (LATEST_TIMESTAMP, 4, 12, -1),
    ],
)
async def test_list_offsets_from_an_offset_on(coordinator, timestamp, from_offset, offset, found) -> None:
    """Rows have two records each, of which the first may be before the offset."""
    for newest in (10, 30, 20, 50, 50, 40):
        await commit(coordinator, plain(2, timestamp=newest))
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 0, timestamp, from_offset)])
    assert answers == [OffsetAnswer(0, offset, found)]


async def test_list_offsets_of_an_empty_log(coordinator) -> None:
    timestamps = [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, 0]
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 0, timestamp) for timestamp in timestamps])
    assert answers == [(0, 0, -1), (0, 0, -1), (0, -1, -1), (0, -1, -1)]


# Producers


async def test_producers_are_returned_with_their_last_sequence(coordinator) -> None:
    assert await coordinator.producers(TOPIC, 0) == []
    batches = [plain(3), idempotent(0, 4), idempotent(4, 2), idempotent(0, producer_id=2**62, epoch=7)]
    await commit(coordinator, *batches)
    await commit(coordinator, idempotent(0, 4))  # a duplicate
    (duplicate,) = await commit(coordinator, idempotent(0, producer_id=2**62, epoch=7))
    await commit(coordinator, idempotent(LAST_SEQUENCE - 1, 5, producer_id=-1 & LAST_SEQUENCE))
    reported = await coordinator.producers(TOPIC, 0)
    assert [one[:3] for one in reported] == [(9, 0, 5), (LAST_SEQUENCE, 0, 2), (2**62, 7, 0)]
    assert reported[2].last_timestamp_ms == duplicate.append_time_ms
    assert await coordinator.producers(TOPIC, 1) == []
    assert await coordinator.producers(TOPIC, 9) is None


async def test_expired_producers_are_not_returned(make) -> None:
    coordinator = make(producer_id_expiration_ms=50)
    await coordinator.create_logs(TOPIC, [0])
    await commit(coordinator, idempotent(0))
    while await coordinator.producers(TOPIC, 0):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_all_of_many_producers_are_returned(coordinator) -> None:
    for start in range(0, 1_200, 400):
        await commit(coordinator, *(idempotent(0, producer_id=start + number) for number in range(400)))
    reported = await coordinator.producers(TOPIC, 0)
    assert [one.producer_id for one in reported] == list(range(1_200))


# Announcements


async def test_announcements_contain_the_new_rows(coordinator) -> None:
    segment = os.urandom(16)
    async with aclosing(coordinator.announcements()) as announcements:
        assert await anext(announcements) is None
        await commit(coordinator, plain(2), segment=segment)
        await commit(coordinator, plain(2), segment=segment)  # a retry: nothing new
        await commit(coordinator, plain(3), idempotent(9), idempotent(9), plain(1))
        first, second = await anext(announcements), await anext(announcements)
    assert first is not None
    assert second is not None
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 10_000)])
    assert first == (TOPIC, 0, found.rows[:1], 0, 2, 2, ())
    assert second == (TOPIC, 0, found.rows[1:], 0, 7, 7, ())


async def test_announcements_of_all_shards_come(coordinator) -> None:
    async with aclosing(coordinator.announcements()) as announcements:
        assert await anext(announcements) is None
        await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, part, 1, (plain(),)) for part in range(4)])
        seen = [await anext(announcements) for _ in range(4)]
    assert sorted(announcement.partition for announcement in seen if announcement) == [0, 1, 2, 3]


async def test_tombstones_are_returned_until_they_are_released(coordinator) -> None:
    segments = [bytes([number]) * 16 for number in range(3)]
    assert await coordinator.rows.tombstones_of(0, 10) == []
    assert await coordinator.tombstone(segments) == segments
    assert sorted(await coordinator.rows.tombstones_of(0, 10)) == segments
    assert len(await coordinator.rows.tombstones_of(0, 2)) == 2
    await coordinator.release(segments[1:2])
    assert sorted(await coordinator.rows.tombstones_of(0, 10)) == [segments[0], segments[2]]
