"""Work that must be finished although the client that asked for it has gone away, and work that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Unfinished:
    """Keeps the work that was begun. A drain waits for it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def see_through(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that goes on if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for all work that `see_through` has begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def drop(task: asyncio.Task[Any]) -> None:
    """Cancel a task that nobody waits for any more. If it has failed already, asyncio does not log its exception."""
    task.cancel()
    if task.done() and not task.cancelled():
        task.exception()
