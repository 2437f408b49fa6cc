"""Old rows are read with their own budget and leave the tail's cache alone."""

from __future__ import annotations

import asyncio

import pytest

from proxy.coordinator.interface import Row
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.row_reader import RowReader
from proxy.diskless.wal.segment import segment_key
from proxy.storage.interface import ObjectMissing
from tests.batches import make_batch
from tests.support.memory_log import MemoryObjects

NOW_MS = 1_000_000
COLD_AFTER_MS = 60_000
BLOCK_BYTES = 4_096
BATCH = bytes(make_batch([b"x" * 1_000]))


class Reading:
    """Rows of an age, each in its own segment, and the reads of them."""

    def __init__(self, *, tail_blocks: int = 4, cold_blocks: int = 4, cold_gets: int = 2) -> None:
        self.storage = MemoryObjects()
        self.tail = self.cache(tail_blocks)
        self.cold = self.cache(cold_blocks, cold_gets)
        self.reader = RowReader(self.tail, self.cold, cold_after_ms=COLD_AFTER_MS, now_ms=lambda: NOW_MS)
        self.rows = 0

    def cache(self, blocks: int, max_gets: int | None = None) -> BlockCache:
        return BlockCache(
            DirectReads(self.storage),  # type: ignore[arg-type]
            capacity_bytes=blocks * BLOCK_BYTES,
            block_bytes=BLOCK_BYTES,
            max_gets=max_gets,
        )

    def row(self, age_ms: int) -> Row:
        self.rows += 1
        segment = self.rows.to_bytes(16, "big")
        self.storage.objects[segment_key(segment)] = bytearray(b"\0" + BATCH)
        return Row(5, 5, segment, 1, len(BATCH), 0, NOW_MS - age_ms)


@pytest.mark.parametrize(("age_ms", "cold_gets"), [(0, 0), (COLD_AFTER_MS, 0), (COLD_AFTER_MS + 1, 1)])
async def test_how_old_a_row_is_says_where_it_is_kept(age_ms, cold_gets):
    reading = Reading()
    row = reading.row(age_ms)
    assert reading.reader.cached(row) is None
    run = await reading.reader.run(row)
    assert run.batches[0].base_offset == 5
    assert reading.reader.cached(row) is run
    assert await reading.reader.run(row) is run
    assert (reading.tail.get_count, reading.cold.get_count) == (1 - cold_gets, cold_gets)


async def test_old_rows_in_the_tails_cache_are_read_from_there():
    reading = Reading()
    row = reading.row(COLD_AFTER_MS + 1)
    kept = await reading.tail.run(row)
    assert reading.reader.cached(row) is kept
    assert await reading.reader.run(row) is kept
    assert reading.cold.get_count == 0


async def test_going_through_old_rows_evicts_nothing_of_the_tail():
    reading = Reading()
    young = [reading.row(0) for _ in range(3)]
    for row in young:
        await reading.reader.run(row)
    for _ in range(50):
        await reading.reader.run(reading.row(COLD_AFTER_MS + 1))
    assert reading.tail.evictions == 0
    assert all(reading.tail.cached(row) for row in young)
    assert reading.cold.evictions > 0
    assert reading.cold.used_bytes <= 4 * BLOCK_BYTES


async def test_old_rows_are_read_a_bounded_number_at_a_time_and_hold_up_no_young_one():
    reading = Reading(cold_gets=2)
    fetch, gate = reading.storage.fetch, asyncio.Event()
    under_way: set[str] = set()
    old = [reading.row(COLD_AFTER_MS + 1) for _ in range(6)]
    keys = {segment_key(row.segment) for row in old}

    async def gated(key, start=0, end=None):
        under_way.add(key)
        if key in keys:
            await gate.wait()
        return await fetch(key, start, end)

    reading.storage.fetch = gated
    readers = [asyncio.create_task(reading.reader.run(row)) for row in old for _ in range(2)]
    await asyncio.sleep(0.01)
    assert len(under_way) == 2
    assert await reading.reader.run(reading.row(0))
    gate.set()
    assert len(await asyncio.gather(*readers)) == 12
    assert reading.cold.get_count == 6


async def test_a_missing_object_of_an_old_row_is_reported():
    reading = Reading()
    row = reading.row(COLD_AFTER_MS + 1)
    reading.storage.objects.clear()
    with pytest.raises(ObjectMissing):
        await reading.reader.run(row)
