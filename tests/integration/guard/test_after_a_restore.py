"""A store that goes back to before a merge: the objects that its rows name, and the merged ones."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proxy.cli import app
from proxy.config import Garbage
from proxy.coordinator.interface import NO_PRODUCER_ID, FindRequest, PartitionRun, ProposedBatch, Row
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.redis import RedisCoordinator
from proxy.diskless.wal.segment import segment_key
from proxy.housekeeping.accepted_loss import FOLDER
from proxy.housekeeping.garbage import GarbageCollector
from proxy.storage.file import FileStorage
from proxy.telemetry.stats import Stats

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)
ORPHAN_AGE_S = 3_600
LONG_AGO_S = 3 * ORPHAN_AGE_S


class Bucket:
    """Creates objects of any age."""

    def __init__(self, storage: FileStorage, root: Path) -> None:
        self._storage = storage
        self._root = root

    async def put(self) -> bytes:
        segment = os.urandom(16)
        await self._storage.upload(segment_key(segment), b"\0", 1)
        self.age(segment_key(segment), LONG_AGO_S)
        return segment

    def age(self, key: str, seconds: float) -> None:
        then = time.time() - seconds
        os.utime(self._root / key, (then, then))

    async def segments(self) -> set[str]:
        return {stored.key async for stored in self._storage.objects() if not stored.key.startswith(FOLDER)}

    async def notes(self) -> list[str]:
        return [stored.key async for stored in self._storage.objects(FOLDER) if "loss-accepted" in stored.key]


@pytest.mark.parametrize("grace_ms", [0, 3_600_000])
async def test_merged_objects_stay_until_an_operator_had_time_to_check(
    start_proxy: Any, config_file: Path, losses: Any, storage: FileStorage, tmp_path: Path, grace_ms: int
) -> None:
    bucket = Bucket(storage, tmp_path / "wal")
    proxy = await start_proxy()

    async def keep_house(coordinator: RedisCoordinator, grace_ms: int = grace_ms) -> None:
        settings = Garbage(grace_ms=grace_ms, orphan_age_ms=ORPHAN_AGE_S * 1_000)
        collector = GarbageCollector(coordinator, storage, settings, Stats())
        await collector.sweep_orphans()
        await collector.collect()

    await proxy.coordinator.create_logs(TOPIC, [0])
    kept, *merged = [await bucket.put() for _ in range(3)]
    for segment in (*merged, kept):
        await proxy.coordinator.commit(segment, [PartitionRun(TOPIC, 0, 1, (BATCH,))])
    backup = losses.copy()
    (log,) = await proxy.coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 20)])
    old = log.rows[:2]
    new = Row(0, old[1].last_offset, await bucket.put(), 1, 200, 1_000, old[1].append_time_ms, offsets_in_place=True)
    assert await proxy.coordinator.rows.replace([Swap(TOPIC, 0, old, new)]) == [SwapAnswer.REPLACED]
    await keep_house(proxy.coordinator)
    left = {segment_key(kept), segment_key(new.segment)}
    if grace_ms:
        left |= {segment_key(segment) for segment in merged}
    assert await bucket.segments() == left

    losses.restore(backup)
    await proxy.watch.look()
    assert proxy.coordinator.fence.fenced
    command = ["coordinator", "unfence", "--config", str(config_file), "--all", "--yes"]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert done.exit_code == 0, done.output

    for keeper in (proxy, await start_proxy()):
        await keep_house(keeper.coordinator)
        assert await bucket.segments() == left, "whichever proxy keeps house"
    (log,) = await proxy.coordinator.find([FindRequest(TOPIC, 0, 0, 1 << 20)])
    named = {segment_key(row.segment) for row in log.rows}
    assert (named <= left) == bool(grace_ms), "a grace as long as the backup is old"

    (note,) = await bucket.notes()
    bucket.age(note, ORPHAN_AGE_S + 1)
    await keep_house(proxy.coordinator, 0)
    assert await bucket.segments() == left & named
