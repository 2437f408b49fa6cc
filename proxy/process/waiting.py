"""Waits that end after a time."""

from __future__ import annotations

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most that long; 0 or less lets other tasks run once.

    Python 3.11's `asyncio.wait_for` would lose a cancellation that comes together with the event.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
