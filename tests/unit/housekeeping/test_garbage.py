"""The garbage collector, with the coordinator's model and objects in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from proxy.config import Garbage
from proxy.coordinator.interface import NO_PRODUCER_ID, CoordinatorUnavailable, PartitionRun, ProposedBatch
from proxy.housekeeping import garbage
from proxy.housekeeping.garbage import GarbageCollector
from proxy.stats import Stats
from proxy.storage.interface import StorageError, StoredObject
from proxy.wal.segment import segment_key
from tests.coordinator_model import ModelCoordinator, wall_clock_ms

TOPIC = bytes(16)


class Objects:
    """Object storage of which only what the collector uses is there."""

    def __init__(self) -> None:
        self.modified_ms: dict[str, int] = {}
        self.failing = False

    async def delete(self, keys: Sequence[str]) -> None:
        if self.failing:
            raise StorageError("no")
        for key in keys:
            self.modified_ms.pop(key, None)

    async def objects(self) -> AsyncIterator[StoredObject]:
        for key, modified_ms in list(self.modified_ms.items()):
            yield StoredObject(key, 1, modified_ms)


class Shop:
    """A store with one committed segment for each number."""

    def __init__(self, *numbers: int) -> None:
        self.coordinator = ModelCoordinator()
        self.storage = Objects()
        self.stats = Stats()
        settings = Garbage(orphan_age_ms=60_000)
        self.collector = GarbageCollector(self.coordinator, self.storage, settings, self.stats)  # type: ignore[arg-type]
        self.numbers = numbers

    async def fill(self) -> Shop:
        await self.coordinator.create_logs(TOPIC, self.numbers)
        batch = ProposedBatch(10, 1, 1, NO_PRODUCER_ID, -1, -1)
        for number in self.numbers:
            self.add(number)
            await self.coordinator.commit(segment(number), [PartitionRun(TOPIC, number, 1, (batch,))])
        return self

    def add(self, number: int, age_ms: int = 120_000) -> None:
        self.storage.modified_ms[segment_key(segment(number))] = wall_clock_ms() - age_ms

    def left(self) -> set[int]:
        return {int(key[3:], 16) for key in self.storage.modified_ms}


def segment(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def test_only_what_nothing_uses_is_deleted():
    shop = await Shop(1, 2, 3).fill()
    await shop.coordinator.delete_logs(TOPIC, [1, 3])
    assert await shop.collector.collect() == 2
    assert shop.left() == {2}
    assert await shop.collector.collect() == 0
    assert shop.stats.segments_deleted == 2


async def test_one_round_takes_all_there_is_step_by_step_as_long_as_it_may(monkeypatch):
    monkeypatch.setattr(garbage, "SEGMENTS_PER_STEP", 10)
    monkeypatch.setattr(garbage, "_MUCH", 5)
    shop = await Shop(*range(1, 61)).fill()
    await shop.coordinator.delete_logs(TOPIC, list(range(1, 61)))
    asked = 0

    async def goes_on() -> bool:
        nonlocal asked
        asked += 1
        return asked != 2

    assert await shop.collector.collect(goes_on) == 20
    assert await shop.collector.collect(goes_on) == 40
    assert shop.left() == set()


async def test_a_deletion_that_failed_is_done_again():
    shop = await Shop(1).fill()
    await shop.coordinator.delete_logs(TOPIC, [1])
    shop.storage.failing = True
    with pytest.raises(StorageError):
        await shop.collector.collect()
    assert shop.left() == {1}
    shop.storage.failing = False
    assert await shop.collector.collect() == 1
    assert shop.left() == set()
    assert not shop.coordinator.tombstones


async def test_nothing_is_deleted_where_the_coordinator_does_not_know(monkeypatch):
    shop = await Shop(1).fill()
    await shop.coordinator.delete_logs(TOPIC, [1])

    async def fenced(older_than_ms: int, limit: int) -> list[bytes]:
        raise CoordinatorUnavailable("fenced")

    monkeypatch.setattr(shop.coordinator, "tombstoned", fenced)
    with pytest.raises(CoordinatorUnavailable):
        await shop.collector.collect()
    assert shop.left() == {1}


async def test_old_orphans_are_found_and_nothing_else():
    shop = await Shop(1).fill()
    shop.add(7)
    shop.add(8, age_ms=1_000)
    shop.storage.modified_ms["00/notes"] = 0
    assert await shop.collector.sweep_orphans() == 1
    assert shop.storage.modified_ms.keys() >= {"00/notes"}
    del shop.storage.modified_ms["00/notes"]
    assert await shop.collector.collect() == 1
    assert shop.left() == {1, 8}


async def test_nothing_is_an_orphan_where_the_coordinator_knows_no_object():
    """The store is another one, or came back empty."""
    shop = await Shop(1, 2, 3).fill()
    await shop.coordinator.delete_logs(TOPIC, [1, 2, 3])
    assert await shop.collector.sweep_orphans() == 0
    assert not shop.coordinator.tombstones
    shop.add(7, age_ms=1_000)
    await shop.coordinator.create_logs(TOPIC, [7])
    batch = ProposedBatch(10, 1, 1, NO_PRODUCER_ID, -1, -1)
    await shop.coordinator.commit(segment(7), [PartitionRun(TOPIC, 7, 1, (batch,))])
    assert await shop.collector.sweep_orphans() == 3, "a young object is in use"
