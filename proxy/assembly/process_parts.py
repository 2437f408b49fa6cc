"""The parts that do not depend on brokers, coordinator or storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from proxy.assembly.room import RoomParts, Work
from proxy.config import Settings
from proxy.coordinator.clock import wall_clock_ms
from proxy.process.loop_lag import measure_loop_lag
from proxy.process.memory import MemoryBudget
from proxy.process.memory_trim import keep_trimming
from proxy.process.turns import Turns
from proxy.process.unfinished import Unfinished
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog

_PACE = "diskless_append_commit_interval_ms"


@dataclass(frozen=True, slots=True)
class ProcessParts(RoomParts):
    """Settings, clock, counters, memory and turns of this process."""

    settings: Settings
    now: Callable[[], float]
    """Monotonic seconds."""
    started_ms: int
    """Milliseconds since 1970."""
    throttled_log: ThrottledLog
    stats: Stats
    memory: MemoryBudget
    """Bytes of requests, and of answers that clients have not read."""
    turns: Turns
    unfinished: Unfinished

    def background(self) -> Iterable[Work]:
        """Return the work on the process itself."""
        yield measure_loop_lag(self.stats.loop_lag_seconds)
        yield keep_trimming(lambda: self.settings.limits.memory_trim_interval_ms)

    def take_settings(self, changed: Collection[str]) -> None:
        """Apply the limits of memory and of counted topics, and the commit interval of the histograms."""
        limits = self.settings.limits
        self.memory.resize(limits.max_request_bytes_in_memory)
        self.stats.max_counted_topics = limits.max_counted_topics
        if _PACE in changed:
            self.stats.pace(self.settings.diskless_append_commit_interval_ms)


def build_process(settings: Settings) -> ProcessParts:
    """Build the parts in the running event loop."""
    now = asyncio.get_running_loop().time
    return ProcessParts(
        settings=settings,
        now=now,
        started_ms=wall_clock_ms(),
        throttled_log=ThrottledLog(now),
        stats=Stats(settings.limits.max_counted_topics, settings.diskless_append_commit_interval_ms),
        memory=MemoryBudget(settings.limits.max_request_bytes_in_memory),
        turns=Turns(settings.limits.long_work_slice_ms / 1000),
        unfinished=Unfinished(),
    )
