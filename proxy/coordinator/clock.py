"""A clock for leases that others count: it goes on while the machine is suspended, as the store's does."""

from __future__ import annotations

import time


def running_ms() -> int:
    """Return milliseconds of a clock that nobody sets, and that goes on during a suspend on systems that have one."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
