"""A WAL buffer whose storage and coordinator follow a test's plan, and a producer that records its outcomes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import Any

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.diskless.cache import BlockCache
from proxy.diskless.parts import DirectReads
from proxy.diskless.wal.buffer import WalBuffer
from proxy.diskless.wal.outcome import Outcome
from proxy.diskless.wal.pace import PutBudget
from proxy.records.batches import check_batch
from proxy.storage.interface import StorageError
from proxy.telemetry.stats import Stats
from tests.batches import make_batch
from tests.coordinator_model import ModelCoordinator

TOPIC = b"t" * 16
BATCH = memoryview(make_batch())
HEADER = check_batch(BATCH, max_message_bytes=1 << 20)
ONE_BATCH = HEADER.length
LARGE = 1 << 20


class Storage:
    """ObjectStorage in memory: each upload follows the next of `plans`, (turns of the loop, success)."""

    def __init__(self, plans: Any = ()) -> None:
        self.objects: dict[str, bytes] = {}
        self.plans = list(plans)
        self.gates: list[asyncio.Event] = []
        self.gated = False
        self.at_a_time = self.most_at_a_time = 0

    async def upload(self, key, data, length):
        assert len(data) == length
        turns, succeeds = self.plans.pop(0) if self.plans else (0, True)
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        try:
            if self.gated:
                gate = asyncio.Event()
                self.gates.append(gate)
                await gate.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            if not succeeds:
                raise StorageError("no")
            self.objects[key] = bytes(data)
        finally:
            self.at_a_time -= 1


class Coordinator(ModelCoordinator):
    """Each commit follows the next of `plans`: (turns, whether it takes effect, whether it answers)."""

    def __init__(self, plans: Any = ()) -> None:
        super().__init__()
        self.plans = list(plans)
        self.committed: dict[int, list[bytes]] = defaultdict(list)

    async def commit(self, segment, runs, *, not_after_ms=0):
        turns, takes_effect, answers = self.plans.pop(0) if self.plans else (0, True, True)
        for _ in range(turns):
            await asyncio.sleep(0)
        answered = await super().commit(segment, runs, not_after_ms=not_after_ms) if takes_effect or answers else []
        if not answers:
            raise CoordinatorUnavailable("no")
        return answered


class Producer:
    """Appends batches and keeps the outcome of each."""

    def __init__(self, wal: WalBuffer) -> None:
        self.wal = wal
        self.outcomes: list[tuple[int, int, Outcome]] = []
        """(partition, number, outcome) in the order in which they arrived."""
        self.notified = asyncio.Event()
        self.appended: defaultdict[int, int] = defaultdict(int)

    def append(self, partition: int = 0, *, idempotent: bool = False) -> None:
        number = self.appended[partition]
        self.appended[partition] += 1
        batch = BATCH
        if idempotent:
            batch = memoryview(make_batch(producer_id=7, producer_epoch=0, base_sequence=number))
        header = check_batch(batch, max_message_bytes=LARGE)
        self.wal.append(TOPIC, partition, batch, header, partial(self._report, partition, number))

    def _report(self, partition: int, number: int, outcome: Outcome) -> None:
        self.outcomes.append((partition, number, outcome))
        self.notified.set()

    def codes(self, partition: int = 0) -> dict[int, int]:
        return {number: outcome.error_code for where, number, outcome in self.outcomes if where == partition}


async def make(storage=None, coordinator=None, *, partitions=4, **limits):
    storage = storage or Storage()
    coordinator = coordinator or Coordinator()
    await coordinator.create_logs(TOPIC, range(partitions))
    cache = BlockCache(DirectReads(storage), capacity_bytes=LARGE, block_bytes=LARGE)
    chosen = {
        "interval_s": 60.0,
        "budget": PutBudget(0.0),
        "max_underway": 0,
        "max_bytes": LARGE,
        "max_uploads": 4,
        "commit_timeout_s": 0.0,
    }
    chosen |= {"max_age_s": 0.0, "grace_s": 0.0, "out_of_order_hold_s": 0.0, "max_held_batches": 1_000}
    chosen |= limits
    return WalBuffer(storage, coordinator, cache, Stats(), **chosen)


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)
