"""One cache for several workers: each part of an object is read once, and all see the same memory."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from proxy.diskless.cache import BlockCache
from proxy.diskless.get_count import count_gets
from proxy.diskless.parts import NotRead
from proxy.diskless.wal.segment import segment_key
from proxy.process.shared_memory import PIECE_BYTES
from proxy.storage.interface import ObjectMissing, StorageError
from tests.unit.diskless.shared.machine import machine
from tests.unit.diskless.test_cache import LARGE, MemoryStorage, assert_is_row, build_segment, stored

KEY = "00/an-object"


def storage_with(*sizes: int) -> Any:
    storage: Any = MemoryStorage()
    for number, size in enumerate(sizes):
        storage.objects[f"{KEY}{number}"] = bytes([number + 1]) * size
    return storage


async def test_each_part_is_read_once_for_any_number_of_workers(name: str) -> None:
    async with machine(name, storage_with(100)) as of:
        of.storage.gate.clear()
        workers = [await of.worker() for _ in range(3)]
        reading = [asyncio.create_task(one.reads.read(f"{KEY}0", 10, 300)) for one in workers for _ in range(2)]
        await of.until(lambda: bool(of.storage.fetched))
        of.storage.gate.set()
        parts = await asyncio.gather(*reading)
        assert [bytes(part.data) for part in parts] == [b"\1" * 90] * 6
        assert sum(part.was_read for part in parts) == 1
        assert not (await workers[0].reads.read(f"{KEY}0", 10, 300)).was_read
        assert of.storage.fetched == [(f"{KEY}0", 10, 300)]


async def test_own_segments_are_not_read(name: str) -> None:
    async with machine(name, storage_with()) as of:
        segment = bytes(range(16))
        of.blocks.insert(segment, bytearray(b"abcdef"))
        worker = await of.worker()
        for bounds, data in (((2, 4), b"cd"), ((0, 100), b"abcdef"), ((2, 4), b"cd"), ((0, 100), b"abcdef")):
            part = await worker.reads.read(segment_key(segment), *bounds)
            assert (bytes(part.data), part.was_read) == (data, False)
        assert of.blocks.used_bytes == PIECE_BYTES, "it is only in memory that is shared"
        assert not of.storage.fetched


async def test_what_was_used_least_recently_goes_first_and_readers_keep_what_they_have(name: str) -> None:
    async with machine(name, storage_with(*[PIECE_BYTES] * 4), capacity_bytes=3 * PIECE_BYTES) as of:
        worker = await of.worker()
        first = await worker.reads.read(f"{KEY}0", 0, PIECE_BYTES)
        for number in (1, 2, 0, 3):
            await worker.reads.read(f"{KEY}{number}", 0, PIECE_BYTES)
        assert of.blocks.used_bytes == 3 * PIECE_BYTES
        assert not (await worker.reads.read(f"{KEY}0", 0, PIECE_BYTES)).was_read
        assert (await worker.reads.read(f"{KEY}1", 0, PIECE_BYTES)).was_read
        assert len(worker.reads.reads._arenas) == 3
        of.blocks.capacity_bytes = 0
        await worker.reads.read(f"{KEY}2", 0, PIECE_BYTES)
        assert bytes(first.data) == b"\1" * PIECE_BYTES


async def test_old_records_do_not_push_out_newer_ones(name: str) -> None:
    async with machine(name, storage_with(*[PIECE_BYTES] * 4), capacity_bytes=2 * PIECE_BYTES) as of:
        worker = await of.worker()
        await worker.reads.read(f"{KEY}0", 0, PIECE_BYTES)
        for number in range(1, 4):
            assert (await worker.cold_reads.read(f"{KEY}{number}", 0, PIECE_BYTES)).was_read
        assert not (await worker.cold_reads.read(f"{KEY}3", 0, PIECE_BYTES)).was_read
        assert not (await worker.reads.read(f"{KEY}0", 0, PIECE_BYTES)).was_read
        assert [blocks.used_bytes for blocks in of.caches] == [PIECE_BYTES, 2 * PIECE_BYTES]


async def test_failures_reach_the_reader_and_are_not_kept(name: str) -> None:
    async with machine(name, storage_with(5)) as of:
        worker = await of.worker()
        with pytest.raises(ObjectMissing):
            await worker.reads.read(f"{KEY}9", 0, 5)
        of.storage.failure = StorageError("slow down")
        with pytest.raises(StorageError, match="slow down"):
            await worker.reads.read(f"{KEY}0", 0, 5)
        of.storage.failure = None
        assert bytes((await worker.reads.read(f"{KEY}0", 0, 5)).data) == b"\1" * 5


async def test_readers_do_not_wait_for_a_storage_process_that_ended(name: str) -> None:
    async with machine(name, storage_with(5)) as of:
        worker = await of.worker()
        await worker.reads.read(f"{KEY}0", 0, 4)
        of.storage.gate.clear()
        reading = asyncio.create_task(worker.reads.read(f"{KEY}0", 0, 5))
        await of.until(lambda: len(of.storage.fetched) == 2)
        of.server.close()
        with pytest.raises(StorageError, match="started again"):
            await reading
        assert not worker.reads.reads._arenas
        with pytest.raises(StorageError, match="does not run"):
            await worker.reads.read(f"{KEY}0", 0, 5)
        of.storage.gate.set()
        of.server.listen()
        await worker.link.wait_open()
        assert bytes((await worker.reads.read(f"{KEY}0", 0, 5)).data) == b"\1" * 5


async def test_no_reader_waits_for_an_answer_that_never_comes(name: str) -> None:
    async with machine(name, storage_with(5)) as of:
        worker = await of.worker()
        of.storage.failure = MemoryError()
        with pytest.raises(NotRead, match="started again"):
            await worker.reads.read(f"{KEY}0", 0, 5)
        of.storage.failure = None
        await worker.link.wait_open()
        assert bytes((await worker.reads.read(f"{KEY}0", 0, 5)).data) == b"\1" * 5


async def test_a_link_is_made_again_when_descriptors_are_free_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine(name, storage_with(5)) as of:
        worker = await of.worker()
        with monkeypatch.context() as full:

            def none_left(*_: object) -> None:
                raise OSError(errno.EMFILE, "Too many open files")

            full.setattr("socket.socket", none_left)
            worker.link.close()
            await asyncio.sleep(0.1)
        assert not worker.link.is_open
        await worker.link.wait_open()
        assert (await worker.reads.read(f"{KEY}0", 0, 5)).was_read


async def test_a_worker_keeps_nothing_of_memory_that_is_evicted(name: str) -> None:
    data, rows = build_segment([[10, 20], [30]])
    async with machine(name, await stored(data)) as of:
        worker = await of.worker()
        cache = BlockCache(worker.reads, capacity_bytes=LARGE, block_bytes=LARGE)
        worker.reads.reads.on_gone.append(cache.forget)
        for forget in (lambda: of.blocks.resize(0), worker.link.close):
            assert_is_row(await cache.run(rows[0]), rows[0])
            assert cache.used_bytes > len(data)
            forget()
            await of.until(lambda: cache.used_bytes == 0)
            await worker.link.wait_open()
        assert_is_row(await cache.run(rows[0]), rows[0])


async def test_caches_of_workers_count_only_the_gets_that_they_cause(name: str) -> None:
    data, rows = build_segment([[10, 20], [30]])
    storage: Any = await stored(data)
    async with machine(name, storage) as of:
        caches = [BlockCache((await of.worker()).reads, capacity_bytes=LARGE, block_bytes=LARGE) for _ in range(2)]
        counted = []
        for cache in caches:
            counted.append(count_gets())
            for row in rows:
                assert_is_row(await cache.run(row), row)
        assert [cache.get_count for cache in caches] == [1, 0]
        assert [cache.bytes_read for cache in caches] == [len(data), 0]
        assert [len(one) for one in counted] == [1, 0]
        of.server.close()
        await of.until(lambda: not any(worker.link.is_open for worker in of.workers))
        other = rows[0]._replace(segment=bytes(16))
        with pytest.raises(NotRead):
            await caches[1].run(other)
        assert caches[1].get_count == 0, "nobody asked object storage"


@pytest.mark.parametrize("elsewhere", [{"base_offset": 77, "last_offset": 78}, {"append_time_ms": 99}])
async def test_what_another_worker_sends_does_not_change(name: str, elsewhere: dict[str, int]) -> None:
    data, rows = build_segment([[10, 20]])
    storage: Any = await stored(data)
    async with machine(name, storage) as of:
        caches = [BlockCache((await of.worker()).reads, capacity_bytes=LARGE, block_bytes=LARGE) for _ in range(3)]
        here = rows[0]._replace(base_offset=5, last_offset=6, append_time_ms=55, log_append_time=True)
        sent = (await caches[0].run(here)).data
        before = bytes(sent)
        assert bytes((await caches[1].run(here)).data) == before
        assert (await caches[2].run(here._replace(**elsewhere))).data != before
        assert sent == before
