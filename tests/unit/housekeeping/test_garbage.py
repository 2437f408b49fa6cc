"""The garbage collector, with the coordinator's model and objects in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import structlog

from proxy.config import Garbage
from proxy.coordinator.interface import NO_PRODUCER_ID, CoordinatorUnavailable, PartitionRun, ProposedBatch
from proxy.diskless.wal.segment import segment_key
from proxy.housekeeping import garbage
from proxy.housekeeping.accepted_loss import FOLDER, loss_accepted_ms, note_accepted_loss
from proxy.housekeeping.garbage import GarbageCollector
from proxy.storage.interface import ObjectsLeft, StorageError, StoredObject
from proxy.telemetry.stats import Stats
from tests.coordinator_model import ModelCoordinator, wall_clock_ms

TOPIC = bytes(16)


class Objects:
    """The part of object storage that the collector uses."""

    def __init__(self) -> None:
        self.modified_ms: dict[str, int] = {}
        self.failing = False
        self.refused: set[str] = set()
        """Keys that can't be deleted."""
        self.ahead_ms = 0
        """Difference of its clock to that of the proxy's machine."""

    async def delete(self, keys: Sequence[str]) -> None:
        if self.failing:
            raise StorageError("no")
        for key in set(keys) - self.refused:
            self.modified_ms.pop(key, None)
        if left := [key for key in keys if key in self.refused]:
            raise ObjectsLeft(dict.fromkeys(left, "AccessDenied"))

    async def upload(self, key: str, data: bytes, length: int) -> None:
        self.modified_ms[key] = wall_clock_ms() + self.ahead_ms

    async def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        for key, modified_ms in list(self.modified_ms.items()):
            if key.startswith(folder):
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
        self.storage.modified_ms[segment_key(segment(number))] = wall_clock_ms() + self.storage.ahead_ms - age_ms

    def left(self) -> set[int]:
        return {int(key[3:], 16) for key in self.storage.modified_ms if not key.startswith(FOLDER)}


def segment(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def test_only_what_nothing_uses_is_deleted():
    shop = await Shop(1, 2, 3).fill()
    await shop.coordinator.delete_logs(TOPIC, [1, 3])
    assert await shop.collector.collect() == 2
    assert shop.left() == {2}
    assert await shop.collector.collect() == 0
    assert shop.stats.segments_deleted == 2


async def test_one_round_deletes_all_garbage_in_steps_within_its_time(monkeypatch):
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


async def always() -> bool:
    return True


async def test_objects_that_cannot_be_deleted_delay_no_others_and_are_reported_once_a_round(monkeypatch):
    """There are more of them than a step takes, and they are the oldest."""
    monkeypatch.setattr(garbage, "SEGMENTS_PER_STEP", 10)
    monkeypatch.setattr(garbage, "_MUCH", 5)
    shop = await Shop(*range(1, 61)).fill()
    await shop.coordinator.delete_logs(TOPIC, shop.numbers)
    refused = set(range(1, 26))
    shop.storage.refused = {segment_key(segment(number)) for number in refused}
    with structlog.testing.capture_logs() as logged:
        assert await shop.collector.collect(always) == 35
        assert await shop.collector.collect(always) == 0
    assert shop.left() == refused
    assert shop.coordinator.tombstones == {segment(number) for number in refused}
    assert shop.stats.segments_deleted == 35
    events = [entry for entry in logged if entry["event"] == "segments_not_deleted"]
    assert [(entry["count"], entry["reason"]) for entry in events] == [(25, "AccessDenied")] * 2
    shop.storage.refused.clear()
    assert await shop.collector.collect(always) == 25
    assert not shop.coordinator.tombstones


async def test_a_storage_that_takes_no_deletions_is_not_asked_for_all_of_them(monkeypatch):
    monkeypatch.setattr(garbage, "SEGMENTS_PER_STEP", 10)
    monkeypatch.setattr(garbage, "_MUCH", 5)
    monkeypatch.setattr(garbage, "_MOST_LEFT", 20)
    shop = await Shop(*range(1, 61)).fill()
    await shop.coordinator.delete_logs(TOPIC, shop.numbers)
    shop.storage.refused = set(shop.storage.modified_ms)
    with structlog.testing.capture_logs() as logged:
        assert await shop.collector.collect(always) == 0
    assert [entry["count"] for entry in logged] == [30]


async def test_nothing_is_deleted_if_the_coordinator_does_not_know(monkeypatch):
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


@pytest.mark.parametrize("ahead_ms", [-7_200_000, 7_200_000])
async def test_objects_grow_old_by_the_clock_of_the_storage(ahead_ms: int) -> None:
    """The proxy's clock may be hours ahead: an object that is committed right now is not an orphan."""
    shop = await Shop(1).fill()
    shop.storage.ahead_ms = ahead_ms
    shop.add(7)
    shop.add(8, age_ms=1_000)
    assert await shop.collector.sweep_orphans() == 1
    assert await shop.collector.collect() == 1
    assert shop.left() == {1, 8}
    await note_accepted_loss(shop.storage)  # type: ignore[arg-type]
    shop.add(9)
    assert await shop.collector.sweep_orphans() == 0, "after a loss there is time to look"


async def test_without_the_time_of_the_storage_nothing_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = await Shop(1).fill()
    shop.add(7)

    async def forgets(key: str, data: bytes, length: int) -> None:
        """Accept the object, and list it later."""

    monkeypatch.setattr(shop.storage, "upload", forgets)
    with pytest.raises(StorageError, match="is not listed"):
        await shop.collector.sweep_orphans()


async def test_nothing_is_an_orphan_if_the_coordinator_knows_no_object():
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


async def test_after_an_accepted_loss_nothing_is_an_orphan_until_there_was_time_to_look():
    """The store went back to before a merge: its rows name deleted objects, and no row names object 7, which the merge
    wrote."""
    shop = await Shop(1).fill()
    shop.add(7)
    await note_accepted_loss(shop.storage)  # type: ignore[arg-type]
    with structlog.testing.capture_logs() as logged:
        assert await shop.collector.sweep_orphans() == 0
    assert [(entry["event"], entry["count"]) for entry in logged] == [("orphans_kept", 1)]
    assert not shop.coordinator.tombstones

    (note,) = (key for key in shop.storage.modified_ms if key.startswith(FOLDER))
    shop.storage.modified_ms[note] -= 59_000
    assert await shop.collector.sweep_orphans() == 0
    shop.storage.modified_ms[note] -= 1_000
    assert await shop.collector.sweep_orphans() == 1


async def test_a_loss_that_is_accepted_during_a_sweep_is_seen_by_it(monkeypatch):
    shop = await Shop(1).fill()
    shop.add(7)
    used = shop.coordinator.used

    async def restored(segments: Sequence[bytes]) -> list[bool]:
        await note_accepted_loss(shop.storage)  # type: ignore[arg-type]
        return await used(segments)

    monkeypatch.setattr(shop.coordinator, "used", restored)
    assert await shop.collector.sweep_orphans() == 0
    assert not shop.coordinator.tombstones


async def test_the_last_accepted_loss_counts(monkeypatch):
    storage = Objects()
    assert await loss_accepted_ms(storage) is None  # type: ignore[arg-type]
    await note_accepted_loss(storage)  # type: ignore[arg-type]
    (first,) = storage.modified_ms
    storage.modified_ms[first] = 1_000
    storage.modified_ms["coordinator/state-0"] = wall_clock_ms() + 60_000
    left_at_upload = []
    upload = storage.upload

    async def uploaded(key: str, data: bytes, length: int) -> None:
        left_at_upload.append(first in storage.modified_ms)
        await upload(key, data, length)

    monkeypatch.setattr(storage, "upload", uploaded)
    before_ms = wall_clock_ms()
    await note_accepted_loss(storage)  # type: ignore[arg-type]
    assert before_ms <= (await loss_accepted_ms(storage) or 0) <= wall_clock_ms()  # type: ignore[arg-type]
    assert left_at_upload == [True], "there is no moment without any"
    assert len(storage.modified_ms) == 2, "the state of the store, and one of these"
