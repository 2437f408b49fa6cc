"""Return free memory to the system.

glibc keeps memory that was freed between blocks that are still in use. So a process would stay as large as its busiest
moment made it, and grow a little with each busier one.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

_OFF_INTERVAL_S = 60.0
"""How often it is looked whether it has been switched on."""


async def keep_trimming(interval_ms: Callable[[], int]) -> None:
    """Return free memory at each interval, forever; 0 for never. Does nothing if the allocator has no way to do it."""
    trim = _malloc_trim()
    while True:
        chosen_ms = interval_ms()
        await asyncio.sleep(chosen_ms / 1000 or _OFF_INTERVAL_S)
        if trim is not None and chosen_ms:
            await asyncio.to_thread(trim)


def _malloc_trim() -> Callable[[], None] | None:
    """glibc's; some milliseconds for a hundred megabytes, without the interpreter's lock."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)
