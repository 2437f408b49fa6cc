"""A journal in memory: the oracle of the journal on brokers, and a stand-in."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from proxy.coordinator.interface_journal import Appended, JournalRecord, JournalUnavailable, PositionTrimmed


class MemoryJournal:
    """Records in lists; several coordinators may share one, as proxies share the brokers'."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.identity = os.urandom(16)
        self.records: dict[int, list[JournalRecord]] = defaultdict(list)
        self.starts: dict[int, int] = defaultdict(int)
        self.reads = 0
        self.away: str | None = None
        """Why nothing is appended or read at the moment."""
        self.lost_replies = 0
        """How many of the next appends take effect, and are not confirmed."""
        self.ahead_ms: Counter[int] = Counter()
        """Milliseconds by which the clock of each partition's leader is ahead."""
        self._clock_ms = clock_ms

    async def append(self, partition: int, value: bytes) -> Appended:
        await asyncio.sleep(0)
        if self.away:
            raise JournalUnavailable(self.away, appended=False)
        records = self.records[partition]
        records.append(JournalRecord(len(records), self._clock_ms() + self.ahead_ms[partition], value))
        if self.lost_replies:
            self.lost_replies -= 1
            raise JournalUnavailable("the reply was lost", appended=True)
        return Appended(records[-1].position, records[-1].time_ms)

    async def read(self, partition: int, from_position: int, max_bytes: int) -> Sequence[JournalRecord]:
        self.reads += 1
        if self.away:
            raise JournalUnavailable(self.away, appended=False)
        if from_position < self.starts[partition]:
            raise PositionTrimmed(self.starts[partition])
        found: list[JournalRecord] = []
        for record in self.records[partition][from_position:]:
            max_bytes -= len(record.value)
            if found and max_bytes < 0:
                break
            found.append(record)
        return found

    async def end(self, partition: int) -> int:
        if self.away:
            raise JournalUnavailable(self.away, appended=False)
        return len(self.records[partition])

    async def start(self, partition: int) -> int:
        return self.starts[partition]

    async def trim(self, partition: int, before: int) -> int:
        self.starts[partition] = max(self.starts[partition], before)
        return self.starts[partition]
