"""Ages in a view: what a wrong clock, a full list or an old copy must not delete, and what has to go in the end."""

from __future__ import annotations

import os

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.copying import copy_shard
from proxy.coordinator.interface import DeleteRequest, PartitionRun, RetainRequest
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix
from tests.integration.coordinator.conftest import MakeCoordinator
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.coordinator.test_view import SHARD
from tests.support.memory_journal import MemoryJournal

SHARDS = 3
DAY_MS, MINUTE_MS = 86_400_000, 60_000
WEEK = RetainRequest(TOPIC, 0, 7 * DAY_MS, -1, True)


@pytest.fixture
async def view(make_view: MakeCoordinator) -> RedisCoordinator:
    coordinator = make_view()
    await coordinator.create_logs(TOPIC, [0])
    return coordinator


async def commit(coordinator: RedisCoordinator, segment: bytes | None = None) -> bytes:
    """Commit one record; return the name of its segment."""
    segment = segment or os.urandom(16)
    (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (plain(1),))])
    assert answer.error_code == 0
    return segment


async def test_a_clock_that_was_ahead_for_a_moment_ends_no_retention(view, journal: MemoryJournal) -> None:
    await commit(view)
    journal.ahead_ms[SHARD] = 8 * DAY_MS
    await commit(view)
    journal.ahead_ms[SHARD] = 0
    (answer,) = await view.retain([WEEK])
    assert answer.log_start_offset == 0


async def test_records_that_are_old_by_both_clocks_go(make_view, journal: MemoryJournal) -> None:
    journal.ahead_ms[SHARD] = -8 * DAY_MS
    view = make_view()
    await view.create_logs(TOPIC, [0])
    await commit(view)
    journal.ahead_ms[SHARD] = 0
    (answer,) = await view.retain([WEEK])
    assert answer.log_start_offset == 1


async def test_a_grace_period_is_not_counted_by_the_servers_clock(make_view, journal: MemoryJournal) -> None:
    """Nobody compares that clock: here it is two minutes ahead."""
    for shard in range(SHARDS):
        journal.ahead_ms[shard] = -2 * MINUTE_MS
    view = make_view()
    segment = os.urandom(16)
    await view.tombstone([segment])
    assert await view.tombstoned(MINUTE_MS, 10) == []


async def test_tombstones_become_old_although_nobody_writes(view, journal: MemoryJournal) -> None:
    segment = os.urandom(16)
    await view.tombstone([segment])
    for shard in range(SHARDS):
        journal.ahead_ms[shard] = 2 * MINUTE_MS
    assert await view.tombstoned(MINUTE_MS, 10) == []
    assert await view.tombstoned(MINUTE_MS, 10) == [segment]


async def test_an_object_that_can_not_be_deleted_stops_no_time(view, journal: MemoryJournal) -> None:
    stuck, segment = bytes(16), os.urandom(16)
    await view.tombstone([stuck])
    for shard in range(SHARDS):
        journal.ahead_ms[shard] = 2 * MINUTE_MS
    await view.tombstone([segment])
    for shard in range(SHARDS):
        journal.ahead_ms[shard] = 4 * MINUTE_MS
    assert await view.tombstoned(MINUTE_MS, 10) == [stuck]
    assert set(await view.tombstoned(MINUTE_MS, 10)) == {stuck, segment}


async def test_shards_that_list_tombstones_in_another_order_stop_nothing(view, client: Redis) -> None:
    segments = [bytes([number]) * 16 for number in range(60)]
    for shard in range(SHARDS):
        order = segments if shard else segments[::-1]
        await client.zadd(f"{shard_prefix(shard)}tombstones", {one: number for number, one in enumerate(order)})
    gone: set[bytes] = set()
    for _ in range(12):
        some = await view.tombstoned(0, 10)
        await view.release(some)
        gone.update(some)
    assert gone == set(segments)


async def test_answers_to_a_commit_are_there_as_long_as_an_older_copy_may_need_them(
    view, client: Redis, journal: MemoryJournal
) -> None:
    """The server's clock forgets none: records may be applied much later, to a copy of that time."""
    segment = await commit(view)
    (key,) = [key async for key in client.scan_iter(match=f"{shard_prefix(SHARD)}answers:*")]
    assert segment in key
    assert await client.pttl(key) > 6 * DAY_MS

    async def keep(_: bytes) -> None:
        pass

    assert view.view is not None
    await copy_shard(view.view, SHARD, 65_536, keep)
    assert await client.exists(key)
    journal.ahead_ms[SHARD] = 2 * 60 * MINUTE_MS
    await commit(view)
    await copy_shard(view.view, SHARD, 65_536, keep)
    assert not await client.exists(key)


async def test_a_store_without_a_journal_lists_no_answers(make_coordinator: MakeCoordinator, client: Redis) -> None:
    """Nothing would ever remove them from the list."""
    coordinator = make_coordinator()
    await coordinator.create_logs(TOPIC, [0])
    await commit(coordinator)
    assert [key async for key in client.scan_iter(match="*answers:*")]
    assert [key async for key in client.scan_iter(match="*answered")] == []


async def test_a_server_that_starts_full_can_be_proved_and_freed(
    make_view: MakeCoordinator, client: Redis, settings: config.Redis
) -> None:
    """It has another replication ID, as after a failover."""
    first = make_view()
    await first.create_logs(TOPIC, [0])
    await commit(first)
    for shard in range(SHARDS):
        await client.hset(f"{shard_prefix(shard)}meta", "proved", "x" * 16)
    await client.config_set("maxmemory", int((await client.info("memory"))["used_memory"]) // 2)
    try:
        second = make_view()
        (log,) = await second.describe(TOPIC, [0])
        assert log is not None
        (answer,) = await second.delete_records([DeleteRequest(TOPIC, 0, -1)])
        assert answer.log_start_offset == 1
    finally:
        await client.config_set("maxmemory", 0)
