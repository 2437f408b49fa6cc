"""The time by the clock of object storage, with files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from proxy import config
from proxy.housekeeping.storage_clock import FOLDER, storage_now_ms
from proxy.storage.file import FileStorage

HOUR_S = 3_600


@pytest.fixture
async def storage(tmp_path: Path) -> FileStorage:
    storage = FileStorage(config.Storage(url=tmp_path.as_uri()))
    await storage.open()
    return storage


async def test_proxies_that_look_at_the_same_time_each_get_the_time(storage: FileStorage) -> None:
    before_ms = time.time_ns() // 1_000_000
    found = await asyncio.gather(*(storage_now_ms(storage) for _ in range(20)))
    assert all(before_ms - 1_000 <= one <= time.time_ns() // 1_000_000 for one in found)
    assert [stored.key async for stored in storage.objects(FOLDER)] == []


@pytest.mark.parametrize(("age_s", "stays"), [(HOUR_S / 2, True), (2 * HOUR_S, False)])
async def test_only_a_clock_that_was_left_behind_is_deleted(
    storage: FileStorage, tmp_path: Path, age_s: float, stays: bool
) -> None:
    key = f"{FOLDER}clock-of-another-proxy"
    await storage.upload(key, b"x", 1)
    written = time.time() - age_s
    os.utime(tmp_path / key, (written, written))
    await storage_now_ms(storage)
    assert [stored.key async for stored in storage.objects(FOLDER)] == [key] * stays
