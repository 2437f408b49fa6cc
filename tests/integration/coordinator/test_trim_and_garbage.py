"""Records that are deleted or expire, and the segments that nothing uses afterwards; model and real coordinator."""

from __future__ import annotations

import os

import pytest

from proxy.coordinator import redis as coordinator_redis
from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_PRODUCER_ID,
    Announcement,
    Coordinator,
    DeleteRequest,
    FindRequest,
    ListRequest,
    LogAnswer,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.redis import RedisCoordinator
from tests.coordinator_model import wall_clock_ms

TOPIC = bytes(range(16))
HOUR_MS = 3_600_000
OUT_OF_RANGE, UNKNOWN_TOPIC, STORAGE_ERROR = 1, 3, 56


@pytest.fixture
async def coordinator(make) -> Coordinator:
    made: Coordinator = make()
    await made.create_logs(TOPIC, range(8))
    return made


async def append(
    coordinator: Coordinator, *timestamps: int, partition: int = 0, records: int = 1, length: int = 100
) -> list[bytes]:
    """Append a segment, and so a row, for each timestamp."""
    segments = []
    for timestamp in timestamps:
        segments.append(os.urandom(16))
        batch = ProposedBatch(length, records, timestamp, NO_PRODUCER_ID, -1, -1)
        (answer,) = await coordinator.commit(segments[-1], [PartitionRun(TOPIC, partition, 1, (batch,))])
        assert answer.error_code == 0
    return segments


async def ends(coordinator: Coordinator, partition: int = 0) -> tuple[int, int, int, int]:
    (log,) = await coordinator.describe(TOPIC, [partition])
    assert log is not None
    return log.log_start_offset, log.high_watermark, log.size_bytes, log.rows


async def delete(coordinator: Coordinator, before: int, partition: int = 0) -> tuple[int, int]:
    (answer,) = await coordinator.delete_records([DeleteRequest(TOPIC, partition, before)])
    return answer


async def retain(coordinator: Coordinator, ms: int = -1, size: int = -1, *, append_time: bool = False) -> int:
    (answer,) = await coordinator.retain([RetainRequest(TOPIC, 0, ms, size, append_time)])
    assert answer.error_code == 0
    return answer.log_start_offset


async def test_records_before_an_offset_are_deleted_for_every_reader(coordinator) -> None:
    await append(coordinator, 1, 2, 3, records=10)
    assert await delete(coordinator, 15) == (0, 15)
    assert await ends(coordinator) == (15, 30, 200, 2)
    assert await coordinator.find([FindRequest(TOPIC, 0, 14, 1)]) == [LogAnswer(OUT_OF_RANGE, (), 15, 30, 30)]
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 15, 1)])
    assert [(row.base_offset, row.last_offset) for row in answer.rows] == [(10, 19)]
    assert await coordinator.list_offsets([ListRequest(TOPIC, 0, EARLIEST_TIMESTAMP)]) == [(0, 15, -1)]
    assert await coordinator.list_offsets([ListRequest(TOPIC, 0, 0)]) == [(0, 15, 2)]


async def test_a_lower_offset_changes_nothing_and_one_beyond_the_end_is_out_of_range(coordinator) -> None:
    await append(coordinator, 1, 2, 3)
    assert await delete(coordinator, 2) == (0, 2)
    assert await delete(coordinator, 1) == (0, 2)
    assert await delete(coordinator, 4) == (OUT_OF_RANGE, -1)
    assert await delete(coordinator, -2) == (OUT_OF_RANGE, -1)
    assert await delete(coordinator, 0, partition=9) == (UNKNOWN_TOPIC, -1)
    assert await delete(coordinator, -1) == (0, 3)
    assert await ends(coordinator) == (3, 3, 0, 0)
    await append(coordinator, 4)
    assert await ends(coordinator) == (3, 4, 100, 1)


async def test_retention_by_time_stops_at_the_first_young_row(coordinator) -> None:
    now = wall_clock_ms()
    await append(coordinator, now - 3 * HOUR_MS, now - 2 * HOUR_MS, now, now - 4 * HOUR_MS)
    assert await retain(coordinator, ms=HOUR_MS) == 2
    assert await ends(coordinator) == (2, 4, 200, 2)
    assert await retain(coordinator, ms=5 * HOUR_MS) == 2


async def test_retention_by_append_time_looks_at_no_timestamp(coordinator) -> None:
    await append(coordinator, 1, -1)
    assert await retain(coordinator, ms=HOUR_MS, append_time=True) == 0
    assert await retain(coordinator, ms=HOUR_MS) == 1, "without a timestamp, a record is as old as its append"


async def test_retention_by_size_keeps_at_least_this_much(coordinator) -> None:
    await append(coordinator, 1, 2, 3, 4)
    assert await retain(coordinator, size=250) == 1
    assert await retain(coordinator, size=300) == 1
    assert await retain(coordinator, size=299) == 1
    assert await retain(coordinator, size=200) == 2
    assert await retain(coordinator, size=0) == 4


async def test_times_are_found_though_the_newest_record_was_deleted(coordinator) -> None:
    """The index has running maxima, in which a deleted row lives on."""
    await append(coordinator, 9_000, *range(1, 251))
    await delete(coordinator, 1)
    asked = [ListRequest(TOPIC, 0, timestamp) for timestamp in (1, 50, 101, 250, 251, 8_000, MAX_TIMESTAMP)]
    found = [(0, 1, 1), (0, 50, 50), (0, 101, 101), (0, 250, 250), (0, -1, -1), (0, -1, -1), (0, 250, 250)]
    assert await coordinator.list_offsets(asked) == found
    await append(coordinator, 8_500, 9_500)
    assert await coordinator.list_offsets(asked[-2:]) == [(0, 251, 8_500), (0, 252, 9_500)]


async def test_times_are_found_in_however_many_rows_behind_a_newer_one_that_was_deleted(coordinator) -> None:
    """There are more rows than one call of the store checks; the newest is before its second call, the oldest in it."""
    await append(coordinator, 9_000, *range(1, 600), 5_000, *range(601, 2_101), 4_000)
    await delete(coordinator, 1)
    asked = [(MAX_TIMESTAMP, 0), (2_099, 601), (4_000, 601), (4_001, 601), (MAX_TIMESTAMP, 601)]
    answers = await coordinator.list_offsets([ListRequest(TOPIC, 0, *one) for one in asked])
    assert answers == [(0, 600, 5_000), (0, 2_099, 2_099), (0, 2_101, 4_000), (0, -1, -1), (0, 2_101, 4_000)]


async def test_the_newest_of_few_records_is_found_though_a_newer_one_was_deleted(coordinator) -> None:
    await append(coordinator, 9_000, 1, 3, 2)
    await delete(coordinator, 1)
    assert await coordinator.list_offsets([ListRequest(TOPIC, 0, MAX_TIMESTAMP)]) == [(0, 2, 3)]


async def test_a_segment_is_garbage_when_its_last_row_is_gone(coordinator) -> None:
    segment = os.urandom(16)
    batch = ProposedBatch(100, 1, 1, NO_PRODUCER_ID, -1, -1)
    await coordinator.commit(segment, [PartitionRun(TOPIC, partition, 1, (batch,)) for partition in range(8)])
    for partition in range(7):
        await delete(coordinator, 1, partition)
    assert await coordinator.tombstone([segment]) == []
    assert await coordinator.tombstoned(0, 10) == []
    await delete(coordinator, 1, 7)
    assert await coordinator.garbage(0, 10) == [segment]
    assert await coordinator.tombstone([segment]) == [segment]
    assert await coordinator.garbage(0, 10) == []
    assert await coordinator.tombstoned(0, 10) == [segment]
    await coordinator.release([segment])
    assert await coordinator.tombstoned(0, 10) == []


async def test_a_tombstoned_segment_can_not_be_committed(coordinator) -> None:
    """The commit of an upload came so late that the sweep took it for an orphan."""
    orphan = os.urandom(16)
    assert await coordinator.tombstone([orphan]) == [orphan]
    batch = ProposedBatch(100, 1, 1, NO_PRODUCER_ID, -1, -1)
    runs = [PartitionRun(TOPIC, partition, 1, (batch,)) for partition in range(8)]
    answers = await coordinator.commit(orphan, runs)
    assert [answer[2:] for answer in answers] == [(STORAGE_ERROR, (), 0, 0)] * 8
    assert await ends(coordinator) == (0, 0, 0, 0)


async def test_a_retry_of_a_commit_is_answered_as_before_though_its_segment_is_tombstoned(coordinator) -> None:
    (segment,) = await append(coordinator, 1)
    await delete(coordinator, 1)
    assert await coordinator.tombstone([segment]) == [segment]
    batch = ProposedBatch(100, 1, 1, NO_PRODUCER_ID, -1, -1)
    (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (batch,))])
    assert (answer.error_code, answer.batches[0].base_offset) == (0, 0)


# Only the real one


async def test_young_garbage_is_left_alone(make_coordinator) -> None:
    coordinator = make_coordinator()
    await coordinator.create_logs(TOPIC, [0])
    segments = await append(coordinator, 1, 2)
    await delete(coordinator, -1)
    assert await coordinator.garbage(60_000, 10) == []
    await coordinator.tombstone(segments)
    assert await coordinator.tombstoned(60_000, 10) == []
    assert await coordinator.tombstoned(0, 10) == sorted(segments)


async def test_the_age_of_a_tombstone_is_that_of_the_first(make_coordinator, client) -> None:
    coordinator = make_coordinator()
    segment = os.urandom(16)
    for shard in range(3):
        await client.zadd(f"diskless:{{d{shard}}}:tombstones", {segment: 1})
    assert await coordinator.tombstone([segment]) == [segment]
    assert await coordinator.tombstoned(HOUR_MS, 10) == [segment]


async def test_a_tombstone_that_did_not_reach_every_shard_is_completed(make_coordinator, client) -> None:
    coordinator = make_coordinator()
    segment = os.urandom(16)
    await client.zadd("diskless:{d1}:tombstones", {segment: 1})
    assert await coordinator.tombstoned(0, 10) == []
    assert await coordinator.tombstoned(0, 10) == [segment]


async def test_many_rows_are_freed_in_several_calls(make_coordinator, monkeypatch) -> None:
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_DELETE_CALL", 3)
    coordinator: RedisCoordinator = make_coordinator()
    await coordinator.create_logs(TOPIC, range(3))
    for partition in range(3):
        await append(coordinator, *range(10), partition=partition)
    requests = [DeleteRequest(TOPIC, partition, 7 + partition) for partition in range(3)]
    assert await coordinator.delete_records(requests) == [(0, 7), (0, 8), (0, 9)]
    assert [await ends(coordinator, partition) for partition in range(3)] == [
        (7, 10, 300, 3),
        (8, 10, 200, 2),
        (9, 10, 100, 1),
    ]


async def test_readers_are_notified_of_a_new_log_start(make_coordinator) -> None:
    coordinator: RedisCoordinator = make_coordinator()
    await coordinator.create_logs(TOPIC, [0])
    await append(coordinator, 1, 2)
    announcements = coordinator.announcements()
    assert await anext(announcements) is None
    await delete(coordinator, 1)
    assert await anext(announcements) == Announcement(TOPIC, 0, (), 1, 2, 2)
    await announcements.aclose()


async def test_rows_that_are_appended_during_a_deletion_stay(make_coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_DELETE_CALL", 2)
    coordinator, producer = make_coordinator(), make_coordinator()
    await coordinator.create_logs(TOPIC, [0])
    await append(producer, 1, 2, 3, 4, 5)
    run = coordinator._calls.run

    async def run_then_append(name: str, *arguments, **options):
        replies = await run(name, *arguments, **options)
        await append(producer, 6)
        return replies

    monkeypatch.setattr(coordinator._calls, "run", run_then_append)
    assert await delete(coordinator, -1) == (0, 5)
    start, high_watermark, _, rows = await ends(producer)
    assert (start, high_watermark - start) == (5, rows)
    assert rows > 1
