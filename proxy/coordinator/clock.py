"""Clocks: one for leases that the store counts too, which goes on while the machine is suspended, as the store's clock
does, and the one on the wall."""

from __future__ import annotations

import time

_RUNNING: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running_ms() -> int:
    """Return milliseconds of a clock that is never set, and that goes on during a suspend if the system has such a
    clock."""
    return time.clock_gettime_ns(_RUNNING) // 1_000_000


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
