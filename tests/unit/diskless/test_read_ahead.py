"""Blocks that are read before anyone requests them: within their share, never twice, and not in the way of others."""

from __future__ import annotations

import asyncio

from proxy.coordinator.interface import FindRequest, Row
from proxy.diskless.cache import BlockCache
from proxy.diskless.get_count import count_gets
from proxy.diskless.parts import DirectReads
from proxy.diskless.rows_ahead import RowsAhead
from proxy.diskless.wal.segment import segment_key
from proxy.storage.interface import StorageError
from tests.batches import make_batch
from tests.support.memory_log import LARGE, TOPIC, MemoryLog, new_log
from tests.unit.diskless.test_cache import MemoryStorage, assert_is_row, build_segment, idle, stored
from tests.unit.diskless.test_diskless_reader import offsets

BLOCK = 2_048
SEGMENTS = 40
OLD_MS = 100_000


async def segments(count: int = SEGMENTS, *, blocks: int = 16) -> tuple[MemoryStorage, BlockCache, list[Row]]:
    """Return a cache for so many blocks, and rows that have a segment of a little less than a block each."""
    names = [bytes([number]) * 16 for number in range(count)]
    built = [build_segment([[BLOCK - 300]], name) for name in names]
    storage = await stored(*(data for data, _ in built), names=names)
    cache = BlockCache(DirectReads(storage), capacity_bytes=blocks * BLOCK, block_bytes=BLOCK)
    return storage, cache, [row for _, (row,) in built]


async def test_what_was_read_ahead_is_not_read_again() -> None:
    storage, cache, rows = await segments(blocks=4)
    assert cache.read_ahead(rows[0])
    assert cache.read_ahead(rows[0])
    await idle(cache)
    run = cache.cached(rows[0])
    assert run is not None
    assert_is_row(run, rows[0])
    assert (cache.ahead_count, cache.get_count, cache.ahead_unused) == (1, 1, 0)

    storage.gate.clear()
    assert cache.read_ahead(rows[1])
    reader = asyncio.create_task(cache.run(rows[1]))
    await asyncio.sleep(0)
    storage.gate.set()
    assert_is_row(await reader, rows[1])
    assert cache.get_count == 2
    assert cache.read_ahead(rows[2]), "its share is free once somebody has waited for it"


async def test_a_quarter_of_the_cache_is_read_ahead_until_it_is_used() -> None:
    _, cache, rows = await segments(blocks=16)
    for row in rows[:4]:
        assert cache.read_ahead(row)
        await idle(cache)
    assert not cache.read_ahead(rows[4])
    assert cache.cached(rows[0])
    assert cache.read_ahead(rows[4])
    assert not cache.read_ahead(rows[5])
    await idle(cache)
    assert (await cache.run(rows[1])).batches
    assert cache.read_ahead(rows[5])


async def test_half_of_the_reads_at_a_time_are_left_to_those_who_wait() -> None:
    storage, cache, rows = await segments(blocks=4)
    storage.gate.clear()
    waiting = [asyncio.create_task(cache.run(row)) for row in rows[:2]]
    await asyncio.sleep(0)
    assert not cache.read_ahead(rows[2])
    storage.gate.set()
    await asyncio.gather(*waiting)
    assert cache.read_ahead(rows[2])


async def test_the_only_read_at_a_time_is_for_those_who_wait() -> None:
    storage, _, rows = await segments()
    cache = BlockCache(DirectReads(storage), capacity_bytes=16 * BLOCK, block_bytes=BLOCK, max_gets=1)
    assert not cache.read_ahead(rows[0])


async def test_nobodys_fetch_has_caused_what_is_read_ahead() -> None:
    _, cache, rows = await segments()
    gets = count_gets()
    assert cache.read_ahead(rows[0])
    await idle(cache)
    assert gets == []
    await cache.run(rows[1])
    assert len(gets) == 1


async def test_what_is_evicted_before_anyone_wanted_it_is_counted_and_gives_its_share_back() -> None:
    _, cache, rows = await segments(blocks=4)
    assert cache.read_ahead(rows[0])
    await idle(cache)
    assert not cache.read_ahead(rows[1])
    for row in rows[2:8]:
        await cache.run(row)
    assert cache.ahead_unused == 1
    assert cache.read_ahead(rows[1])


async def test_a_failure_is_silent_and_gives_its_share_back() -> None:
    storage, cache, rows = await segments(blocks=4)
    storage.failure = StorageError("no")
    assert cache.read_ahead(rows[0])
    await idle(cache)
    storage.failure = None
    assert cache.read_ahead(rows[1])
    assert_is_row(await cache.run(rows[0]), rows[0])
    assert cache.ahead_unused == 0


async def long_log(*, old: bool) -> MemoryLog:
    """Write segments with a batch of two partitions each, which readers are to find far from the end."""
    log = await new_log(partitions=2)
    for _ in range(SEGMENTS):
        await log.write([(partition, make_batch([b"x" * 500])) for partition in range(2)])
    log.now_ms += OLD_MS if old else 0
    log.reader.read_ahead_bytes = 8 * len(make_batch([b"x" * 500]))
    size = len(next(iter(log.storage.objects.values())))
    for cache in (log.tail, log.cold):
        cache._likely_bytes = dict.fromkeys(cache._likely_bytes, size)
    return log


async def go_on(log: MemoryLog, answers: int, partitions: int = 1) -> list[int]:
    """Read answers of one batch of each partition, one after the other; return how many rows had to be waited for."""
    size = len(make_batch([b"x" * 500]))
    waited = []
    for offset in range(answers):
        misses = log.tail.misses + log.cold.misses
        reads = await log.read(*((partition, offset, size) for partition in range(partitions)))
        assert [offsets(read) for read in reads] == [[offset]] * partitions
        waited.append(log.tail.misses + log.cold.misses - misses)
        for cache in (log.tail, log.cold):
            await idle(cache)
    return waited


async def followed(log: MemoryLog) -> asyncio.Task[None]:
    task = asyncio.create_task(log.coordinates.follow())
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_a_reader_that_goes_on_waits_for_its_first_answers_only() -> None:
    for old in (True, False):
        for partitions in (1, 2):
            log = await long_log(old=old)
            task = await followed(log)
            waited = await go_on(log, SEGMENTS - 10, partitions)
            assert sum(map(bool, waited)) <= 5, (old, partitions, waited)
            cache = log.cold if old else log.tail
            assert cache.get_count <= SEGMENTS
            assert log.tail.get_count + log.cold.get_count == cache.get_count
            task.cancel()


async def test_nothing_is_read_ahead_by_a_setting_of_none() -> None:
    log = await long_log(old=True)
    log.reader.read_ahead_bytes = 0
    task = await followed(log)
    waited = await go_on(log, 20)
    assert waited == [1] * 20
    assert log.cold.get_count == 20
    task.cancel()


async def test_no_more_is_read_ahead_than_the_setting_says() -> None:
    log = await long_log(old=True)
    log.reader.read_ahead_bytes //= 4
    task = await followed(log)
    await go_on(log, 12)
    assert log.cold.get_count <= 12 + 2
    task.cancel()


async def test_segments_that_were_merged_are_not_read_ahead() -> None:
    """The rows of the tail are those of before the merge. Once they are old, a reader gets others."""
    log = await long_log(old=True)
    now_s = 0.0
    log.coordinates._now_s = lambda: now_s
    log.reader.read_ahead_bytes = 0
    task = await followed(log)
    await log.read((0, 0))  # up to the end: a tail of all rows
    old = {segment_key(row.segment) for row in log.coordinates._tails[TOPIC, 0].rows[:30]}
    for first in range(3):
        await log.swap(0, first, 10)
    now_s = 50.0
    log.forget_bytes()
    log.reader.read_ahead_bytes = LARGE
    fetched: list[str] = []
    fetch = log.storage.fetch

    async def noted(key: str, start: int = 0, end: int | None = None) -> bytearray:
        fetched.append(key)
        return await fetch(key, start, end)

    log.storage.fetch = noted  # type: ignore[method-assign]
    await go_on(log, 5)
    assert fetched
    assert not old & set(fetched)
    task.cancel()


async def test_a_reader_of_many_partitions_that_is_behind_in_one_has_all_of_the_share() -> None:
    size = len(make_batch([b"x" * 500]))
    log = await new_log(partitions=30)
    for partition in range(1, 30):
        await log.write([(partition, make_batch([b"x" * 500]))])
    for _ in range(SEGMENTS):
        await log.write([(0, make_batch([b"x" * 500]))])
    log.reader.read_ahead_bytes = 2 * size
    log.tail._likely_bytes = dict.fromkeys(log.tail._likely_bytes, size)
    task = await followed(log)
    reads = [(partition, 0, size) for partition in range(1, 30)]
    await log.read((0, 0, size * SEGMENTS))
    log.forget_bytes()
    await log.read(*reads)
    assert log.tail.ahead_count == 0
    await log.read((0, 3, size), *reads)
    assert log.tail.ahead_count == 2
    task.cancel()


async def test_nothing_is_read_ahead_of_a_reader_that_is_behind_in_many_partitions() -> None:
    for partitions, is_read in ((8, True), (9, False)):
        log = await new_log(partitions)
        for _ in range(3):
            await log.write([(partition, make_batch([b"x" * 500])) for partition in range(partitions)])
        log.reader.read_ahead_bytes = LARGE
        log.tail._likely_bytes = dict.fromkeys(log.tail._likely_bytes, 10_000)
        task = await followed(log)
        await log.read(*((partition, 0) for partition in range(partitions)))
        log.forget_bytes()
        await log.read(*((partition, 0, 1) for partition in range(partitions)))
        assert bool(log.tail.ahead_count) == is_read
        task.cancel()


async def test_rows_that_were_learned_long_ago_are_not_read_ahead() -> None:
    log = await long_log(old=False)
    request = FindRequest(TOPIC, 0, 0, 1_000)
    (answer,) = await log.coordinator.find([request])
    ahead = RowsAhead()
    ahead.keep(request, answer, 5.0)
    assert ahead.around((TOPIC, 0), 1, not_before_s=5.0) == answer.rows
    assert ahead.around((TOPIC, 0), 1, not_before_s=5.1) == ()
    assert ahead.around((TOPIC, 0), SEGMENTS, not_before_s=5.0) == ()
