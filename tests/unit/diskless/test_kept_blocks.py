"""Blocks that were read to the end leave a cache before those that somebody may still want."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.interface import Row
from proxy.diskless.cache import BATCH_BYTES, RUN_BYTES, BlockCache
from proxy.diskless.kept_blocks import Block, BlockKey, KeptBlocks
from proxy.diskless.parts import DirectReads
from tests.unit.diskless.test_cache import build_segment, stored

SEGMENTS = 40
FIT = 30
"""Number of segments for which the cache has room."""


async def written(partitions: int = 1) -> tuple[BlockCache, list[list[Row]]]:
    """Return a cache to which segments were written, and the rows of each segment."""
    names = [bytes([number]) * 16 for number in range(SEGMENTS)]
    built = [build_segment([[5000]] * partitions, name) for name in names]
    storage = await stored(*(data for data, _ in built), names=names)
    size = len(built[0][0])
    room = FIT * (size + partitions * (RUN_BYTES + BATCH_BYTES))
    cache = BlockCache(DirectReads(storage), capacity_bytes=room, block_bytes=size)
    for name, (data, _) in zip(names, built, strict=True):
        cache.insert(name, data)
    return cache, [rows for _, rows in built]


async def test_a_reader_that_is_behind_does_not_push_out_what_it_needs_next() -> None:
    """It would need a GET for each segment if the least recently used block always went first."""
    cache, rows = await written()
    for (row,) in rows:
        await cache.run(row)
    assert SEGMENTS - FIT <= cache.get_count <= SEGMENTS * 6 // 10


async def test_readers_that_follow_closely_need_no_gets() -> None:
    cache, rows = await written()
    for (row,) in rows:
        await cache.run(row)
    alone = cache.get_count
    cache, rows = await written()
    for place, (row,) in enumerate(rows):
        await cache.run(row)
        for behind in range(1, 6):
            if place >= behind:
                await cache.run(rows[place - behind][0])
    assert cache.get_count == alone


async def test_blocks_of_which_only_a_part_is_read_go_in_the_order_of_their_use() -> None:
    cache, rows = await written(partitions=2)
    for first, _ in rows[-FIT:]:
        assert cache.cached(first) is not None
    for first, _ in rows[: SEGMENTS - FIT]:
        await cache.run(first)
    newest, others = rows[: SEGMENTS - FIT], rows[SEGMENTS - FIT :]
    assert all(cache.has(first) for first, _ in newest)
    kept = [cache.has(first) for first, _ in others]
    assert not kept[0]
    assert kept[-1]
    assert kept == sorted(kept)


@given(st.integers(0, 2**32), st.integers(1, 2000))
def test_model(seed: int, capacity_bytes: int) -> None:
    """Any uses: the block to go is the least recently used one of those that were read, or of all."""
    chance, blocks, gone = random.Random(seed), KeptBlocks(), 0
    used: list[BlockKey] = []
    """The model: the keys, the least recently used one first."""
    for _ in range(60):
        key = bytes([chance.randrange(8)]) * 16, 0, 100, 100
        choice = chance.randrange(4)
        if choice == 0:
            is_new = key not in used
            block = Block(0, bytearray(chance.randrange(2, 200)))
            assert (blocks.keep(key, block) is block) == is_new
        elif choice == 1:
            assert (blocks.use(key) is not None) == (key in used)
        elif choice == 2 and (found := blocks.get(key)) is not None:
            blocks.use(key)
            blocks.note_read(key, found, Row(0, 0, key[0], 1, chance.randint(1, len(found.data) - 1), 0, 0))
        elif choice == 3:
            assert (blocks.pop(key) is not None) == (key in used)
        if key in used:
            used.remove(key)
        if key in blocks:
            used.append(key)
        assert list(blocks) == used
        read = [one for one in used if (kept := blocks.get(one)) is not None and kept.unread_bytes <= 1]
        size = sum(len(kept.data) for one in read if (kept := blocks.get(one)) is not None)
        if used:
            gone += 1
            first = read if len(read) > 1 and 4 * size > capacity_bytes and gone % 4 else used
            assert blocks.next_to_go(capacity_bytes) == first[0]
        assert blocks.segments_with({key[0]}) == len(used) + (key not in used)
