"""Keep free memory for the next blocks, and return it to the system from time to time.

glibc returns a freed block of some megabytes to the system at once, if it can, and each thread takes its memory from an
arena of its own. So nearly all blocks of segments were in new memory, of which the system has to provide each page:
that took more CPU than everything else in a read.

On the other hand, glibc keeps memory that was freed between blocks that are still in use. So a process would stay as
large as its busiest moment made it, and grow a little with each busier one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable

_OFF_INTERVAL_S = 60.0
"""How often it is looked whether it has been switched on."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 536_870_912
"""Free memory at the end of the heap that is kept until the next trim."""
_IN_HEAP_BYTES = 33_554_432
"""Largest block in the heap, which every version of glibc allows. Larger blocks are mappings of their own."""


def keep_freed_memory() -> None:
    """Let the allocator keep freed memory until `keep_trimming` returns it. Call it before any thread begins.

    Does nothing if the allocator has no such options, or if the environment has options for it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.getenv("GLIBC_TUNABLES", "")
    if mallopt is not None and not chosen:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _IN_HEAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


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
