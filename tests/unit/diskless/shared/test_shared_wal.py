"""One WAL for several workers: their batches travel together, and each worker hears what became of its own."""

from __future__ import annotations

import asyncio

import pytest

from proxy.diskless.shared.link import StorageLink
from proxy.diskless.shared.slabs import Slabs
from proxy.diskless.shared.wal_client import RemoteWal
from proxy.diskless.wal.outcome import Outcome
from proxy.diskless.wal.segment import read_segment
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, REQUEST_TIMED_OUT
from proxy.records.batches import check_batch
from tests.batches import make_batch
from tests.unit.diskless.shared.machine import machine
from tests.unit.diskless.wal.buffer_doubles import BATCH, TOPIC, Producer, turns

SLAB = 4 << 20
LARGE = 1 << 20
ROUNDS, BATCHES = 200, 10


async def test_batches_of_all_workers_are_in_one_segment(name: str) -> None:
    async with machine(name) as of:
        workers = [await of.worker(), await of.worker()]
        producers = [Producer(worker.wal) for worker in workers]
        for producer in producers:
            producer.append(0)
            producer.append(1)
        await of.until(lambda: of.wal.buffered_bytes == 4 * len(BATCH))
        await asyncio.gather(*(worker.wal.drain() for worker in workers))
        assert [producer.codes(0) | producer.codes(1) for producer in producers] == [{0: NONE}] * 2
        offsets = sorted(outcome.base_offset for producer in producers for _, _, outcome in producer.outcomes)
        assert offsets == [0, 0, 1, 1]
        assert len(of.storage.objects) == 1
        assert {(TOPIC, 0, 0, 2), (TOPIC, 1, 0, 2)} <= set(of.heard)


async def test_batches_arrive_as_they_were_sent_and_in_order_in_memory_that_is_used_again(name: str) -> None:
    async with machine(name, interval_s=0.001) as of:
        worker = await of.worker()
        outcomes: list[Outcome] = []
        for sequence in range(ROUNDS * BATCHES):
            sent = make_batch([b"%08d" % sequence * 1_000], producer_id=7, producer_epoch=0, base_sequence=sequence)
            header = check_batch(memoryview(sent), max_message_bytes=LARGE)
            worker.wal.append(TOPIC, 0, memoryview(sent), header, outcomes.append)
            if sequence % BATCHES == BATCHES - 1:
                await asyncio.sleep(0.002)  # some are answered, while others wait
        await worker.wal.drain()
        assert [outcome.base_offset for outcome in outcomes] == list(range(ROUNDS * BATCHES))
        assert worker.wal._slabs.size_bytes < ROUNDS * BATCHES * 8_000
        stored = [batch for data in of.storage.objects.values() for batch in read_segment(data)]
        assert [batch.header.base_sequence for batch in stored] == list(range(ROUNDS * BATCHES))
        for data in of.storage.objects.values():
            for batch in read_segment(data):
                check_batch(memoryview(data)[batch.position :][: batch.header.length], max_message_bytes=LARGE)


async def test_without_a_storage_process_batches_are_refused_at_once(name: str) -> None:
    wal = RemoteWal(StorageLink("\0" + name), lambda *bounds: None)
    producer = Producer(wal)
    producer.append()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR}
    await wal.drain()


async def test_if_the_storage_process_ends_nobody_knows_what_became_of_the_batches(name: str) -> None:
    async with machine(name) as of:
        worker = await of.worker()
        producer = Producer(worker.wal)
        producer.append(idempotent=True)
        await of.until(lambda: of.wal.buffered_bytes > 0)
        of.server.close()
        await of.until(lambda: bool(producer.outcomes))
        assert producer.codes() == {0: REQUEST_TIMED_OUT}
        of.server.listen()
        await worker.link.wait_open()
        producer.append(idempotent=True)
        assert producer.codes()[1] == KAFKA_STORAGE_ERROR, "the first one has not come again"


async def test_what_a_worker_has_sent_is_committed_if_the_worker_ends(name: str) -> None:
    async with machine(name) as of:
        worker = await of.worker()
        Producer(worker.wal).append()
        await of.until(lambda: of.wal.buffered_bytes > 0)
        unused = asyncio.create_task(of.server.wait_until_unused())
        await turns()
        assert not unused.done()
        await worker.end()
        await unused
        await of.wal.drain()
        assert len(of.storage.objects) == 1


@pytest.mark.parametrize("size", [1, 3 << 20, 5 << 20])
async def test_slabs_hold_batches_of_any_size(name: str, size: int) -> None:
    async with machine(name) as of:
        wal = (await of.worker()).wal
        for _ in range(3):
            place = wal._place(memoryview(bytes(size)))
            assert place is not None
            wal._slabs.settled(place[0])
        assert wal._slabs.size_bytes == (SLAB if size < SLAB else size)


def test_memory_is_used_again_only_when_all_batches_in_it_are_settled() -> None:
    slabs = Slabs(lambda number, memory: None, lambda number: None)
    places = [slabs.place(memoryview(bytes(100))) for _ in range(3)]
    slabs.settled(places[0][0])
    slabs.settled(places[1][0])
    assert slabs.place(memoryview(bytes(100)))[1] == 300
    for number, _ in places[:2]:
        slabs.settled(number)
    assert slabs.place(memoryview(bytes(100)))[1] == 0
    slabs.close()


async def test_the_storage_process_never_waits_for_a_worker_that_sends_nonsense(name: str) -> None:
    async with machine(name) as of:
        worker = await of.worker()
        producer = Producer(worker.wal)
        worker.wal._slabs.place(BATCH)
        worker.wal._slabs._slabs[1].number = 7  # the storage process does not know it
        producer.append()
        await of.until(lambda: bool(producer.outcomes))
        assert producer.codes() == {0: REQUEST_TIMED_OUT}
        await worker.link.wait_open()
        producer.append()
        await of.until(lambda: of.wal.buffered_bytes > 0)
