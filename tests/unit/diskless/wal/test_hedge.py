"""An upload that takes too long is begun again under a second name; only the name that won is ever committed."""

from __future__ import annotations

import asyncio
import gc

import pytest

from proxy.diskless.wal import hedge
from proxy.diskless.wal.pace import PutBudget
from proxy.diskless.wal.segment import segment_key
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.storage.interface import StorageError
from tests.unit.diskless.wal.buffer_doubles import Coordinator, Producer, Storage, make

AFTER_S = 0.001


class Uploads(Storage):
    """Storage whose uploads wait, by the order in which they began, until the test ends them."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []
        self.ends: list[asyncio.Future[bool]] = []
        """Results: whether the object is stored."""
        self.began = asyncio.Condition()

    async def upload(self, key, data, length):
        self.keys.append(key)
        end = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        async with self.began:
            self.began.notify_all()
        if not await end:
            raise StorageError("no")
        self.objects[key] = bytes(data)

    async def wait(self, count: int) -> None:
        async with self.began:
            await asyncio.wait_for(self.began.wait_for(lambda: len(self.keys) >= count), 10)


class Commits(Coordinator):
    """A coordinator that knows the names of the segments that were committed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[bytes] = []

    async def commit(self, segment, runs, *, not_after_ms=0):
        self.names.append(segment)
        return await super().commit(segment, runs, not_after_ms=not_after_ms)


async def started(**limits):
    storage, coordinator = Uploads(), Commits()
    wal = await make(storage, coordinator, hedge_after_s=AFTER_S, **limits)
    producer = Producer(wal)
    producer.append()
    wal.flush()
    return storage, coordinator, wal, producer


@pytest.mark.parametrize("winner", [0, 1])
async def test_the_first_upload_that_ends_is_committed_and_no_other(winner: int) -> None:
    storage, coordinator, wal, producer = await started()
    await storage.wait(2)
    storage.ends[winner].set_result(True)
    await wal.drain()
    assert producer.codes() == {0: NONE}
    assert [segment_key(name) for name in coordinator.names] == [storage.keys[winner]]
    assert storage.ends[1 - winner].cancelled(), "nobody waits for the other one"
    assert len(set(storage.keys)) == 2


@pytest.mark.parametrize("first", [0, 1])
async def test_an_upload_that_fails_leaves_the_other_one(first: int) -> None:
    storage, coordinator, wal, producer = await started()
    await storage.wait(2)
    storage.ends[first].set_result(False)
    await asyncio.sleep(0)
    storage.ends[1 - first].set_result(True)
    await wal.drain()
    assert producer.codes() == {0: NONE}
    assert [segment_key(name) for name in coordinator.names] == [storage.keys[1 - first]]


async def test_both_fail() -> None:
    storage, coordinator, wal, producer = await started()
    await storage.wait(2)
    for end in storage.ends:
        end.set_result(False)
    await wal.drain()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR}
    assert coordinator.names == []
    gc.collect()  # no exception of a task was left


async def test_both_end_in_the_same_step() -> None:
    storage, coordinator, wal, producer = await started()
    await storage.wait(2)
    for end in storage.ends:
        end.set_result(True)
    await wal.drain()
    assert producer.codes() == {0: NONE}
    assert len(coordinator.names) == 1


async def test_an_upload_that_is_fast_enough_is_made_once() -> None:
    wal = await make(storage := Storage(), hedge_after_s=60.0)
    Producer(wal).append()
    await wal.drain()
    assert len(storage.objects) == 1


async def test_an_upload_that_fails_early_is_not_begun_again() -> None:
    wal = await make(storage := Storage([(0, False)]), hedge_after_s=60.0)
    producer = Producer(wal)
    producer.append()
    await wal.drain()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR}
    assert storage.objects == {}


async def test_few_second_uploads_run_at_a_time_and_each_takes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedge, "MOST_AT_A_TIME", 1)
    budget = PutBudget(0.0, burst=10.0)
    storage, _, wal, producer = await started(budget=budget)
    await storage.wait(2)
    producer.append(1)
    wal.flush()
    await storage.wait(3)
    await asyncio.sleep(10 * AFTER_S)
    assert len(storage.keys) == 3, "a store that is slow for all gets no second upload of each segment"
    assert budget.wait_s(0.0) == 0.0
    assert wal._stats.uploads_hedged == 1
    await wal.close()
    assert all(end.cancelled() for end in storage.ends)


async def test_an_end_of_the_process_ends_both() -> None:
    storage, coordinator, wal, producer = await started()
    await storage.wait(2)
    await wal.close()
    assert all(end.cancelled() for end in storage.ends)
    assert coordinator.names == []
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR}
