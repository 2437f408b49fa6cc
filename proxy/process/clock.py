"""The clock on the wall."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
