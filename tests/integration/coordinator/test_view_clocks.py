"""Leaders of the journal whose clocks differ, or are set: commits with a limit go on, and late ones stay late."""

from __future__ import annotations

import os
import pickle

import pytest

from proxy.coordinator.interface import CoordinatorUnavailable, PartitionRun
from proxy.coordinator.lateness import no_later
from proxy.coordinator.redis import RedisCoordinator
from tests.integration.coordinator.conftest import MakeCoordinator
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.coordinator.test_view import SHARD, STORAGE_ERROR
from tests.support.memory_journal import MemoryJournal

DAY_MS = 86_400_000
LIMIT_MS = 60_000
OTHER = next(partition for partition in range(0, 64, 16) if (SHARD + partition // 16) % 3 != SHARD)
"""A partition of the topic in another shard."""
OTHER_SHARD = (SHARD + OTHER // 16) % 3


@pytest.fixture
async def proxies(make_view: MakeCoordinator) -> tuple[RedisCoordinator, RedisCoordinator]:
    """Two proxies that know the clocks of both shards."""
    first, second = make_view(), make_view()
    await first.create_logs(TOPIC, range(64))
    for proxy in (first, second):
        for partition in (0, OTHER):
            assert await error(proxy, partition) == 0
    return first, second


async def error(proxy: RedisCoordinator, partition: int = 0, left_ms: int = LIMIT_MS) -> int:
    """Commit a batch within a time from now on; return the error."""
    deadline_ms = proxy.deadline_ms(left_ms)
    assert deadline_ms is not None
    return await error_before(proxy, partition, deadline_ms)


async def error_before(proxy: RedisCoordinator, partition: int, deadline_ms: int) -> int:
    """Commit a batch before a time; return the error."""
    run = PartitionRun(TOPIC, partition, 1, (plain(1),))
    (answer,) = await proxy.commit(os.urandom(16), [run], not_after_ms=deadline_ms)
    return answer.error_code


async def goes_on(proxy: RedisCoordinator) -> bool:
    """Return whether at most one of five commits is rejected, and no later one."""
    errors = [await error(proxy) for _ in range(5)]
    return errors.count(STORAGE_ERROR) <= 1 and errors[2:] == [0, 0, 0]


async def test_a_clock_that_is_set_costs_each_proxy_one_commit(proxies, journal: MemoryJournal) -> None:
    first, second = proxies
    journal.ahead_ms[SHARD] = DAY_MS
    assert await goes_on(first)
    assert await goes_on(second)
    journal.ahead_ms[SHARD] = 0
    assert await goes_on(first)
    assert await goes_on(second)


async def test_a_record_of_a_moment_a_day_ahead_stops_nobody(proxies, make_view, journal: MemoryJournal) -> None:
    """The leader's clock is right again before the others append to its partition."""
    first, second = proxies
    journal.ahead_ms[SHARD] = DAY_MS
    await error(first)
    journal.ahead_ms[SHARD] = 0
    assert await goes_on(first)
    assert await goes_on(second)
    newcomer = make_view()
    await error(newcomer, OTHER)
    assert await goes_on(newcomer)


async def test_a_broker_whose_clock_is_wrong_for_good_stops_nobody(proxies, make_view, journal: MemoryJournal) -> None:
    for ahead_ms in (10 * LIMIT_MS, -10 * LIMIT_MS):
        journal.ahead_ms[SHARD] = ahead_ms
        for proxy in proxies:
            await error(proxy)
            await error(proxy)
            for partition in (0, OTHER, 0, OTHER):
                assert await error(proxy, partition) == 0


@pytest.mark.parametrize("was_set", [False, True])
async def test_a_commit_that_is_late_by_the_shards_time_is_rejected(
    proxies, journal: MemoryJournal, was_set: bool
) -> None:
    first, second = proxies
    ahead_ms = 0
    if was_set:
        journal.ahead_ms[SHARD] = ahead_ms = DAY_MS
        await error(second)
        journal.ahead_ms[SHARD] = 0
        await error(first)
    ends = [await error(first), len(journal.records[SHARD])]
    journal.ahead_ms[SHARD] = ahead_ms + LIMIT_MS + 10_000  # so much later it is appended
    assert await error(first) == STORAGE_ERROR
    assert ends == [0, len(journal.records[SHARD]) - 1], "it is in the journal, and was rejected there"


@pytest.mark.parametrize("ahead_ms", [-20 * LIMIT_MS, 20 * LIMIT_MS])
async def test_a_clock_that_becomes_known_moves_no_deadline(proxies, journal: MemoryJournal, ahead_ms: int) -> None:
    """Other shards' leaders have nothing to do with a commit's own."""
    first, _ = proxies
    deadline_ms = first.deadline_ms(LIMIT_MS)
    journal.ahead_ms[OTHER_SHARD] = ahead_ms
    assert await error_before(first, OTHER, 0) == 0
    assert await error_before(first, 0, deadline_ms) == 0
    journal.ahead_ms[SHARD] = LIMIT_MS + 10_000  # so much later it is appended
    assert await error_before(first, 0, deadline_ms) == STORAGE_ERROR
    assert await error_before(first, 0, deadline_ms) == STORAGE_ERROR, "it does not leap with the shard"
    assert await error(first) == 0


async def test_what_was_begun_before_a_leap_gets_no_time_anew(proxies, journal: MemoryJournal) -> None:
    """The leap may show that this process was stopped, and its clock with it."""
    first, _ = proxies
    begun_ms = first.deadline_ms(10 * LIMIT_MS)
    journal.ahead_ms[SHARD] = 20 * LIMIT_MS
    assert await error(first) == STORAGE_ERROR
    taken_along = pickle.loads(pickle.dumps(begun_ms))
    for deadline_ms in (begun_ms, no_later(begun_ms, first, LIMIT_MS), no_later(taken_along, first, LIMIT_MS)):
        assert await error_before(first, 0, deadline_ms) == STORAGE_ERROR
    assert await error_before(first, 0, no_later(0, first, LIMIT_MS)) == 0


async def test_a_proxy_that_helps_learns_of_a_leap(proxies, journal: MemoryJournal) -> None:
    first, second = proxies
    journal.ahead_ms[SHARD], journal.lost_replies = DAY_MS, 1
    with pytest.raises(CoordinatorUnavailable):
        await error(first)
    journal.ahead_ms[SHARD] = 0
    assert second.view is not None
    second.view._known[SHARD] = len(journal.records[SHARD])
    await second.describe(TOPIC, [0])
    assert await error(second) == 0


async def test_what_is_too_late_before_it_is_appended_is_not_appended(proxies, journal: MemoryJournal) -> None:
    first, _ = proxies
    records = len(journal.records[SHARD])
    assert await error(first, left_ms=-1) == STORAGE_ERROR
    assert len(journal.records[SHARD]) == records
