"""The lag of the event loop is the time for which it was kept busy."""

from __future__ import annotations

import asyncio
import time

from proxy.process.loop_lag import measure_loop_lag
from proxy.telemetry.stats import LOOP_LAG_BOUNDS_S, Histogram


class RecordingHistogram(Histogram):
    """Says when something was observed."""

    def __init__(self) -> None:
        super().__init__(LOOP_LAG_BOUNDS_S)
        self.observed = asyncio.Event()

    def observe(self, value: float) -> None:
        super().observe(value)
        self.observed.set()


async def test_a_loop_that_is_kept_busy_is_late() -> None:
    lag = RecordingHistogram()
    task = asyncio.create_task(measure_loop_lag(lag, 0.001))
    await lag.observed.wait()
    await asyncio.sleep(0)  # now it sleeps again
    lag.observed.clear()
    before = lag.total
    time.sleep(0.1)  # noqa: ASYNC251 - that is the point
    await lag.observed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert lag.total - before > 0.09
