"""How late the event loop is: what any client's request waits on top, while something else keeps the loop busy."""

from __future__ import annotations

import asyncio
from time import perf_counter

from proxy.telemetry.stats import Histogram

_INTERVAL_S = 0.25


async def measure_loop_lag(lag_seconds: Histogram, interval_s: float = _INTERVAL_S) -> None:
    """Ask to be woken, and observe how much later it was, forever.

    Timers count in milliseconds: less than two of them are none.
    """
    while True:
        began_s = perf_counter()
        await asyncio.sleep(interval_s)
        lag_seconds.observe(max(0.0, perf_counter() - began_s - interval_s))
