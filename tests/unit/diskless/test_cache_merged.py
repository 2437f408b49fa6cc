"""Blocks of merged objects: larger ones, as far as there is room for all current reads."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import Row
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.segment import MergedBuilder, segment_key
from proxy.records.batches import patch_offsets
from tests.batches import make_batch
from tests.unit.diskless.test_cache import MemoryStorage, assert_is_row, build_segment, idle

BLOCK = 16_384
"""For the usual MiB."""
MERGED_BLOCK = 8 * BLOCK
ROW = BLOCK - 1_000


async def merged_object(storage: MemoryStorage, number: int, sizes: list[int]) -> list[Row]:
    """A merged object that has a row with a batch of about each size."""
    builder = MergedBuilder(bytes([200 + number]) * 16)
    for offset, size in enumerate(sizes):
        batch = make_batch([b"x" * size])
        patch_offsets(batch, offset, 0, None)
        builder.add(batch, base_offset=offset, last_offset=offset, max_timestamp_ms=0, append_time_ms=0)
    await storage.upload(segment_key(builder.segment), builder.data, builder.size_bytes)
    return builder.rows


def cold_cache(storage: MemoryStorage, capacity_bytes: int = 64 * BLOCK, max_gets: int = 8) -> BlockCache:
    """The proportions of the default settings."""
    return BlockCache(
        DirectReads(storage),
        capacity_bytes=capacity_bytes,
        block_bytes=BLOCK,
        merged_block_bytes=MERGED_BLOCK,
        max_gets=max_gets,
    )


async def scan(cache: BlockCache, logs: list[list[Row]], rows_at_a_time: int) -> float:
    """Read logs side by side, each from its beginning; GETs per block."""
    for first in range(0, max(map(len, logs)), rows_at_a_time):
        for log in logs:
            for row in log[first : first + rows_at_a_time]:
                assert_is_row(await cache.run(row), row)
    return cache.get_count / sum(row.length for log in logs for row in log) * BLOCK


@pytest.mark.parametrize("rows_at_a_time", [1, 50])
async def test_a_scan_of_a_merged_object_needs_a_tenth_of_the_gets(rows_at_a_time: int) -> None:
    storage = MemoryStorage()
    log = await merged_object(storage, 0, [ROW] * 70)
    cache = cold_cache(storage)
    assert await scan(cache, [log], rows_at_a_time) < 1.1 / 8
    assert {end - start for _, start, end in storage.fetched if end} == {MERGED_BLOCK}
    assert cache.bytes_read == len(storage.objects[segment_key(log[0].segment)])


@pytest.mark.parametrize(("readers", "most_gets"), [(1, 1 / 8), (4, 1 / 8), (6, 1 / 4), (12, 1 / 2)])
async def test_with_many_objects_at_a_time_no_block_is_read_in_vain(readers: int, most_gets: float) -> None:
    storage = MemoryStorage()
    logs = [await merged_object(storage, number, [ROW] * 70) for number in range(readers)]
    cache = cold_cache(storage)
    gets = await scan(cache, logs, 1)
    size = sum(len(data) for data in storage.objects.values())
    assert cache.bytes_read < 1.1 * size
    assert gets < 1.1 * most_gets


async def test_with_very_many_it_is_as_with_small_blocks() -> None:
    storage = MemoryStorage()
    logs = [await merged_object(storage, number, [ROW] * 70) for number in range(24)]
    plain = BlockCache(DirectReads(storage), capacity_bytes=64 * BLOCK, block_bytes=BLOCK, max_gets=8)
    cache = cold_cache(storage)
    await scan(plain, logs, 1)
    await scan(cache, logs, 1)
    assert cache.get_count <= plain.get_count
    assert cache.bytes_read < 1.1 * plain.bytes_read


async def test_a_block_counts_while_it_is_read() -> None:
    storage = MemoryStorage()
    logs = [await merged_object(storage, number, [ROW] * 10) for number in range(20)]
    cache = cold_cache(storage)
    await asyncio.gather(*(cache.run(log[0]) for log in logs))
    sizes = Counter((end - start) // BLOCK for _, start, end in storage.fetched if end)
    assert sizes == {8: 4, 4: 4, 2: 8, 1: 4}


async def test_others_are_read_in_small_blocks_as_before() -> None:
    storage = MemoryStorage()
    data, rows = build_segment([[9_000]] * 40)
    await storage.upload(segment_key(rows[0].segment), data, len(data))
    cache = cold_cache(storage)
    for row in rows:
        assert_is_row(await cache.run(row), row)
    assert {end - start for _, start, end in storage.fetched if end} == {BLOCK}


@pytest.mark.parametrize(("capacity", "max_gets", "largest"), [(64, 8, 8), (64, 32, 2), (4, 1, 4), (4, 8, 1)])
async def test_only_as_many_blocks_are_read_at_a_time_as_fit(capacity: int, max_gets: int, largest: int) -> None:
    storage = MemoryStorage()
    logs = [await merged_object(storage, number, [ROW] * 10) for number in range(40)]
    cache = cold_cache(storage, capacity * BLOCK, max_gets)
    assert cache.likely_bytes(logs[0][0]) <= largest * BLOCK
    storage.gate.clear()
    readers = [asyncio.create_task(cache.run(log[0])) for log in logs]
    for _ in range(20):
        await asyncio.sleep(0)
    assert storage.in_flight == min(max_gets, capacity // largest)
    assert cache.used_bytes <= cache.capacity_bytes
    assert max(end - start for _, start, end in storage.fetched if end) <= largest * BLOCK
    storage.gate.set()
    await asyncio.gather(*readers)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, BLOCK), min_size=1, max_size=30), min_size=1, max_size=8),
    st.integers(1, 60),
    st.integers(1, 8),
    st.integers(0, 2**32),
)
async def test_model(sizes: list[list[int]], capacity: int, max_gets: int, seed: int) -> None:
    """Many readers read all rows, merged or not, in any order; the cache counts exactly what it keeps."""
    chance = random.Random(seed)
    storage = MemoryStorage()
    rows: list[Row] = []
    for number, of_one in enumerate(sizes):
        if number % 3:
            rows += await merged_object(storage, number, of_one)
        else:
            data, others = build_segment([[size] for size in of_one], bytes([number]) * 16)
            await storage.upload(segment_key(others[0].segment), data, len(data))
            rows += others
    cache = cold_cache(storage, capacity * BLOCK, max_gets)

    async def read(row: Row) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        assert_is_row(cache.cached(row) or await cache.run(row), row)

    await asyncio.gather(*(read(chance.choice(rows)) for _ in range(60)))
    await idle(cache)
    assert storage.most_in_flight <= max_gets
    assert cache.used_bytes <= cache.capacity_bytes
    assert cache.used_bytes == sum(block.size_bytes for block in cache._entries.values())
    assert cache._entries.segments_with([]) == len({key[0] for key in cache._entries})
    await cache.close()
    assert (cache.used_bytes, cache._entries.segments_with([])) == (0, 0)
