"""Old rollups are deleted by whole days; no other object is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.accounting.rollups import expiry
from proxy.accounting.rollups.expiry import RollupExpiry
from proxy.config import Settings, Storage
from proxy.housekeeping import housekeeper
from proxy.housekeeping.housekeeper import Housekeeper
from proxy.storage.file import FileStorage
from proxy.storage.interface import ObjectsLeft

DAY_MS = 86_400_000
NOW_MS = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
KEPT = {
    "traffic/date=2026-11-20/23-p-0-000001.parquet",
    "traffic/date=2026-11-22/00-p-0-000001.parquet",
    "traffic/date=2026-01-01/notes.txt",
    "traffic/readme",
    "00/00000000000000000000000000000000",
}
OLD = {f"traffic/date=2026-11-{day:02}/{hour:02}-p-0-000001.parquet" for day in (1, 18, 19) for hour in range(3)}


@pytest.fixture
async def storage(tmp_path: Path) -> FileStorage:
    made = FileStorage(Storage(url=tmp_path.as_uri()))
    await made.open()
    return made


async def test_days_before_the_retention_are_deleted(storage: FileStorage, monkeypatch) -> None:
    monkeypatch.setattr(expiry, "_KEYS_PER_STEP", 2)
    for key in KEPT | OLD:
        await storage.upload(key, b"x", 1)
    sweeper = RollupExpiry(storage, retention_ms=2 * DAY_MS, now_ms=lambda: NOW_MS)
    assert await sweeper.sweep() == len(OLD)
    assert {stored.key async for stored in storage.objects()} == KEPT
    assert await sweeper.sweep() == 0


async def test_an_object_that_cannot_be_deleted_blocks_no_other(storage: FileStorage, monkeypatch) -> None:
    """A listing always begins with the oldest objects: those that cannot be deleted must not block the others."""
    monkeypatch.setattr(expiry, "_KEYS_PER_STEP", 2)
    stays = min(OLD)
    delete = storage.delete

    async def refusing(keys: Sequence[str]) -> None:
        await delete([key for key in keys if key != stays])
        if stays in keys:
            raise ObjectsLeft({stays: "AccessDenied"})

    monkeypatch.setattr(storage, "delete", refusing)
    for key in KEPT | OLD:
        await storage.upload(key, b"x", 1)
    with pytest.raises(ObjectsLeft, match=f"1 objects were not deleted, first {stays}: AccessDenied"):
        await RollupExpiry(storage, retention_ms=2 * DAY_MS, now_ms=lambda: NOW_MS).sweep()
    assert {stored.key async for stored in storage.objects()} == KEPT | {stays}


async def test_a_storage_without_rollups_is_not_swept(storage: FileStorage) -> None:
    assert await RollupExpiry(storage, retention_ms=DAY_MS, now_ms=lambda: NOW_MS).sweep() == 0


async def test_the_housekeeper_deletes_old_rollups(storage: FileStorage, monkeypatch) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.0)
    monkeypatch.setattr(housekeeper, "ROLLUPS_INTERVAL_MS", 10)
    swept = asyncio.Event()

    class Sweeper(RollupExpiry):
        async def sweep(self) -> int:
            swept.set()
            return await super().sweep()

    async def hold(*_: object) -> bool:
        return True

    idle: Any = SimpleNamespace(
        sweep=None, compare=None, look_for_strays=None, sweep_orphans=None, lease_lost=lambda: None
    )
    fleet: Any = SimpleNamespace(hold=hold)
    settings = Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},
        redis={"url": "redis://127.0.0.1:1"},
        storage={"url": "file:///nowhere"},
    )
    sweeper = Sweeper(storage, retention_ms=DAY_MS, now_ms=lambda: NOW_MS)
    house = Housekeeper(settings, fleet, "me", idle, idle, idle, idle, idle, idle, fenced=dict, rollups=sweeper)
    keeping = asyncio.create_task(house.keep_house())
    async with asyncio.timeout(20):
        await swept.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
