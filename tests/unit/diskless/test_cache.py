"""The cache against a model: right bytes at right offsets, one GET for any number of readers, bounded, and tolerant."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import Row
from proxy.diskless.cache import BATCH_BYTES, RUN_BYTES, BlockCache
from proxy.diskless.get_count import count_gets
from proxy.diskless.kept_blocks import PatchedRun
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.records.batches import check_batch
from proxy.storage.interface import Buffer, ObjectMissing, StorageError
from tests.batches import make_batch

TOPIC = b"t" * 16
LARGE = 1 << 20


class MemoryStorage:
    """ObjectStorage in a dict. GETs wait while `gate` is closed, and fail while `failure` is set."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.fetched: list[tuple[str, int, int | None]] = []
        self.in_flight = self.most_in_flight = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        self.objects[key] = bytes(data)

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self.fetched.append((key, start, end))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        if self.failure is not None:
            raise self.failure
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start:end]

    async def delete(self, keys: Sequence[str]) -> None: ...


def build_segment(sizes: Sequence[Sequence[int]], name: bytes = b"s" * 16) -> tuple[bytearray, list[Row]]:
    """Build a segment with a run for each of `sizes`, its batches with a record of that many bytes; return the rows
    too."""
    builder = SegmentBuilder()
    for partition, values in enumerate(sizes):
        for size in values:
            batch = memoryview(make_batch([b"x" * size]))
            builder.add(TOPIC, partition, batch, check_batch(batch, max_message_bytes=LARGE))
    built = builder.build(name)
    rows = [
        Row(
            1000 * run.partition,
            1000 * run.partition + len(run.batches) - 1,
            name,
            run.position,
            sum(batch.length for batch in run.batches),
            0,
            0,
        )
        for run in built.runs
    ]
    return built.data, rows


def assert_is_row(run: PatchedRun, row: Row, leader_epoch: int = 0) -> None:
    assert len(run.data) == row.length
    assert run.data.readonly
    offset = row.base_offset
    for batch in run.batches:
        assert batch.base_offset == batch.last_offset == offset
        data = bytes(run.data[batch.position : batch.position + batch.length])
        other = DefaultRecordBatch(data)
        assert other.validate_crc()
        assert other.base_offset == offset
        assert int.from_bytes(data[12:16], "big") == leader_epoch
        offset += 1
    assert offset == row.last_offset + 1


async def stored(*segments: bytearray, names: Sequence[bytes] = (b"s" * 16,)) -> MemoryStorage:
    storage = MemoryStorage()
    for name, data in zip(names, segments, strict=True):
        await storage.upload(segment_key(name), data, len(data))
    return storage


async def idle(cache: BlockCache) -> None:
    """Wait for reads that have lost all their readers."""
    if cache._loading:
        await asyncio.wait(cache._loading.values())  # which, unlike gather, does not look at their exceptions
    await asyncio.sleep(0)
    assert not cache._loading


async def test_a_small_segment_is_read_whole_in_one_get():
    data, rows = build_segment([[10, 20], [30], [40, 50, 60]])
    storage = await stored(data)
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE, leader_epoch=3)
    assert cache.cached(rows[0]) is None
    first = await cache.run(rows[0])
    for row in rows:
        assert_is_row(await cache.run(row), row, leader_epoch=3)
    assert storage.fetched == [(segment_key(b"s" * 16), 0, LARGE)]
    assert (cache.get_count, cache.bytes_read, cache.misses, cache.hits) == (1, len(data), 1, len(rows))
    assert cache.cached(rows[0]) is first


async def test_rows_under_log_append_time_have_the_time_of_their_append():
    data, (plain, stamped) = build_segment([[10, 20], [300, 5]])
    stamped = stamped._replace(append_time_ms=1_750_000_000_000, log_append_time=True)
    for block_bytes in (LARGE, 128):
        cache = BlockCache(DirectReads(await stored(data)), capacity_bytes=LARGE, block_bytes=block_bytes)
        for row, expected in ((plain, (1_700_000_000_000, 0)), (stamped, (1_750_000_000_000, 1))):
            run = await cache.run(row)
            assert_is_row(run, row)
            for batch in run.batches:
                records = DefaultRecordBatch(bytes(run.data[batch.position : batch.position + batch.length]))
                assert [(one.timestamp, one.timestamp_type) for one in records] == [expected]


async def test_own_segments_are_written_through():
    data, rows = build_segment([[10, 20], [300]])
    for block_bytes in (LARGE, 128):
        storage = MemoryStorage()
        cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=block_bytes)
        cache.insert(b"s" * 16, bytearray(data))
        for row in rows:
            assert_is_row(await cache.run(row), row)
        assert cache.get_count == 0
        assert storage.fetched == []


async def test_an_insert_is_not_copied():
    data, rows = build_segment([[10]])
    cache = BlockCache(DirectReads(MemoryStorage()), capacity_bytes=LARGE, block_bytes=LARGE)
    cache.insert(b"s" * 16, data)
    run = cache.cached(rows[0])
    assert run is not None
    assert run.data.obj is data


async def test_a_segment_above_the_capacity_is_not_inserted():
    data, rows = build_segment([[1000], [1000]])
    cache = BlockCache(DirectReads(MemoryStorage()), capacity_bytes=1500, block_bytes=100)
    cache.insert(b"s" * 16, data)
    assert cache.used_bytes == 0
    assert cache.cached(rows[0]) is None


async def test_readers_of_one_block_share_one_get():
    data, rows = build_segment([[10], [20], [30]])
    storage = await stored(data)
    storage.gate.clear()
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)
    readers = [asyncio.create_task(cache.run(row)) for row in rows for _ in range(5)]
    await asyncio.sleep(0)
    storage.gate.set()
    runs = await asyncio.gather(*readers)
    assert cache.get_count == 1
    for number, run in enumerate(runs):
        assert_is_row(run, rows[number // 5])
        assert run is runs[number // 5 * 5]


async def test_a_cancelled_reader_leaves_the_others_alone():
    data, rows = build_segment([[10]])
    storage = await stored(data)
    storage.gate.clear()
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)
    first, second = asyncio.create_task(cache.run(rows[0])), asyncio.create_task(cache.run(rows[0]))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    storage.gate.set()
    assert_is_row(await second, rows[0])
    assert cache.get_count == 1


async def test_a_failure_that_nobody_waits_for_is_silent_and_forgotten():
    data, rows = build_segment([[10]])
    storage = await stored(data)
    storage.gate.clear()
    storage.failure = StorageError("unplugged")
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)
    noticed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noticed.append(context))
    reader = asyncio.create_task(cache.run(rows[0]))
    await asyncio.sleep(0)
    reader.cancel()
    storage.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await reader
    await idle(cache)
    gc.collect()
    assert noticed == []
    assert cache.used_bytes == 0
    with pytest.raises(StorageError, match="unplugged"):
        await cache.run(rows[0])
    storage.failure = None
    assert_is_row(await cache.run(rows[0]), rows[0])


async def test_a_missing_segment_raises_its_own_error():
    _, rows = build_segment([[10]])
    with pytest.raises(ObjectMissing):
        await BlockCache(DirectReads(MemoryStorage()), capacity_bytes=LARGE, block_bytes=LARGE).run(rows[0])


@pytest.mark.parametrize("block_bytes", [LARGE, 100])
async def test_a_cut_off_object_is_named_and_read_again_later(block_bytes):
    data, rows = build_segment([[10], [100, 100]])
    storage = await stored(data[:-1])
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=block_bytes)
    assert_is_row(await cache.run(rows[0]), rows[0])
    row = rows[1]
    with pytest.raises(
        StorageError, match=rf"position {row.position}, .*: is cut off: {row.length - 1} of {row.length}"
    ):
        await cache.run(row)
    await storage.upload(segment_key(row.segment), data, len(data))
    if block_bytes == LARGE:  # the short block has been forgotten; of many blocks only the joined run
        assert_is_row(await cache.run(row), row)


async def test_bytes_that_do_not_match_the_row_are_rejected():
    data, rows = build_segment([[10, 20]])
    cache = BlockCache(DirectReads(await stored(data)), capacity_bytes=LARGE, block_bytes=LARGE)
    row = rows[0]
    for wrong, match in (
        (row._replace(position=row.position + 1, length=row.length - 1), "no record batch"),
        (row._replace(last_offset=row.last_offset + 1), "another number of records"),
        (row._replace(length=0), "another number of records"),
    ):
        with pytest.raises(StorageError, match=match):
            await cache.run(wrong)
    assert_is_row(await cache.run(row), row)


async def test_bytes_that_transports_hold_never_change():
    data, rows = build_segment([[10, 20]])
    cache = BlockCache(DirectReads(await stored(data)), capacity_bytes=LARGE, block_bytes=LARGE)
    first = await cache.run(rows[0])
    before = bytes(first.data)
    elsewhere = rows[0]._replace(base_offset=77, last_offset=78)
    assert_is_row(await cache.run(elsewhere), elsewhere)
    assert first.data == before
    assert (await cache.run(rows[0])) is first


async def test_the_least_recently_used_block_is_evicted_first():
    names = [bytes([number]) * 16 for number in range(4)]
    built = [build_segment([[100]], name) for name in names]
    storage = await stored(*(data for data, _ in built), names=names)
    size = len(built[0][0])
    cache = BlockCache(DirectReads(storage), capacity_bytes=3 * (size + RUN_BYTES + BATCH_BYTES), block_bytes=size)
    rows = [rows[0] for _, rows in built]
    for row in rows[:3]:
        await cache.run(row)
    assert cache.cached(rows[0]) is not None
    await cache.run(rows[3])
    assert [cache.cached(row) is not None for row in rows] == [True, False, True, True]
    assert cache.evictions == 1


async def test_blocks_of_one_inserted_buffer_go_together():
    data, rows = build_segment([[5000], [5000], [5000]])
    other, _ = build_segment([[5000], [5000], [5000], [5000]], b"o" * 16)
    one_block_too_few = len(data) + len(other) - 1
    cache = BlockCache(DirectReads(MemoryStorage()), capacity_bytes=one_block_too_few, block_bytes=rows[1].position)
    cache.insert(b"s" * 16, data)
    assert cache.used_bytes == len(data)
    cache.insert(b"o" * 16, other)
    assert cache.used_bytes == len(other)
    assert [cache.cached(row) for row in rows] == [None] * 3


async def test_reads_under_way_are_within_the_capacity():
    names = [bytes([number]) * 16 for number in range(8)]
    built = [build_segment([[100]], name) for name in names]
    storage = await stored(*(data for data, _ in built), names=names)
    block_bytes = 4096
    cache = BlockCache(DirectReads(storage), capacity_bytes=2 * block_bytes + 100, block_bytes=block_bytes)
    storage.gate.clear()
    readers = [asyncio.create_task(cache.run(rows[0])) for _, rows in built]
    for _ in range(10):
        await asyncio.sleep(0)
    assert storage.in_flight == 2
    assert cache.used_bytes == 2 * block_bytes
    storage.gate.set()
    for run, (_, rows) in zip(await asyncio.gather(*readers), built, strict=True):
        assert_is_row(run, rows[0])
    assert storage.most_in_flight == 2
    assert cache.used_bytes <= 2 * block_bytes + 100


async def test_a_closed_cache_raises_an_error_for_its_readers():
    data, rows = build_segment([[10]])
    storage = await stored(data)
    storage.gate.clear()
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)
    reader = asyncio.create_task(cache.run(rows[0]))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(StorageError, match="closed"):
        await reader
    assert cache.used_bytes == 0


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), min_size=1, max_size=5), min_size=1, max_size=4
    ),
    block_bytes=st.integers(16, 700),
    capacity_blocks=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
async def test_model(sizes, block_bytes, capacity_blocks, seed):
    """Many readers of all rows, in any order, some of them cancelled, some segments written through."""
    chance = random.Random(seed)
    names = [bytes([number]) * 16 for number in range(len(sizes))]
    built = [build_segment(each, name) for each, name in zip(sizes, names, strict=True)]
    storage = await stored(*(data for data, _ in built), names=names)
    capacity_bytes = capacity_blocks * block_bytes
    cache = BlockCache(DirectReads(storage), capacity_bytes=capacity_bytes, block_bytes=block_bytes)
    for (data, _), name in zip(built, names, strict=True):
        if chance.random() < 0.3:
            cache.insert(name, bytearray(data))
    rows = [row for _, each in built for row in each]
    kept: list[tuple[PatchedRun, Row, bytes]] = []

    async def read(row: Row) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.3:
            cache.read_ahead(chance.choice(rows))
        run = cache.cached(row) or await cache.run(row)
        kept.append((run, row, bytes(run.data)))

    readers = [asyncio.create_task(read(chance.choice(rows))) for _ in range(40)]
    for reader in chance.sample(readers, 8):
        await asyncio.sleep(0)
        reader.cancel()
    results = await asyncio.gather(*readers, return_exceptions=True)
    assert [result for result in results if result is not None and not isinstance(result, asyncio.CancelledError)] == []
    for run, row, before in kept:
        assert_is_row(run, row)
        assert run.data == before
    assert storage.most_in_flight <= max(1, capacity_blocks)
    assert all(end - start <= block_bytes and start % block_bytes == 0 for _, start, end in storage.fetched)
    await idle(cache)  # reads are counted when they end
    assert cache.get_count == len(storage.fetched)
    assert cache.used_bytes <= capacity_bytes
    assert cache.used_bytes == sum(block.size_bytes for block in cache._entries.values())
    assert cache._ahead.keys() <= set(cache._entries)
    await cache.close()
    assert cache.used_bytes == 0


async def test_blocks_of_small_segments_are_read_without_pushing_out_what_fits():
    names = [bytes([number]) * 16 for number in range(40)]
    built = [build_segment([[100]], name) for name in names]
    storage = await stored(*(data for data, _ in built), names=names)
    block_bytes = 4096
    cache = BlockCache(DirectReads(storage), capacity_bytes=8 * block_bytes, block_bytes=block_bytes)
    rows = [rows[0] for _, rows in built]
    for row in rows:
        await cache.run(row)
    kept = rows[-20:]
    assert await asyncio.gather(*map(cache.run, kept))
    assert cache.get_count == 40
    names = [bytes([100 + number]) * 16 for number in range(8)]
    others = [build_segment([[100]], name) for name in names]
    for name, (data, _) in zip(names, others, strict=True):
        await storage.upload(segment_key(name), data, len(data))
    await asyncio.gather(*(cache.run(rows[0]) for _, rows in others))
    assert all(cache.cached(row) for row in kept)


async def test_each_reader_gets_the_number_of_gets_that_it_caused() -> None:
    storage = MemoryStorage()
    segment, rows = build_segment([[100], [100]])
    await storage.upload(segment_key(b"s" * 16), segment, len(segment))
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)

    async def read(row: Row) -> int:
        counted = count_gets()
        await cache.run(row)
        return len(counted)

    # Both readers need the same block: the first one reads it. A cached block costs nothing.
    assert await asyncio.gather(read(rows[0]), read(rows[1])) == [1, 0]
    assert await asyncio.create_task(read(rows[0])) == 0
    await cache.close()
