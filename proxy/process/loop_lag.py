"""How late the event loop is: what any client's request waits on top, while something else keeps the loop busy."""

from __future__ import annotations

import asyncio
from time import perf_counter

from proxy.telemetry.stats import Histogram

_INTERVAL_S = 0.25


async def measure_loop_lag(lag_seconds: Histogram, interval_s: float = _INTERVAL_S) -> None:
    """Sleep in short intervals, and observe how much later than asked the loop woke the task, forever.

    Timers count in milliseconds, so lags below two milliseconds count as none.
    """
    while True:
        began_s = perf_counter()
        await asyncio.sleep(interval_s)
        lag_seconds.observe(max(0.0, perf_counter() - began_s - interval_s))
