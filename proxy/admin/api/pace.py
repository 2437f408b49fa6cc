"""Answer one request after the other, with pauses: a client that polls the admin port must not slow Kafka clients down.

An answer is made on the event loop that serves clients. After each answer the port rests for PAUSES times the processor
time that it took, so that it takes a small part of the loop at most, however many clients ask. A request that would
wait behind too many others is rejected. There may be several lines, so that urgent requests do not wait behind slow
ones; all lines share the pauses.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PAUSES = 4
_LONGEST_PAUSE_S = 0.25
MAX_WAITING = 64


class Busy(Exception):
    """Too many wait already."""


class _Line:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0


class Pace:
    """One at a time in each line."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, _Line] = defaultdict(_Line)
        self._not_before_s = 0.0

    @asynccontextmanager
    async def turn(self, name: str = "") -> AsyncIterator[None]:
        """Wait for it in the line of that name. Raises Busy."""
        line = self._lines[name]
        if line.waiting >= MAX_WAITING:
            raise Busy
        line.waiting += 1
        try:
            await line.turn.acquire()
        finally:
            line.waiting -= 1
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, self._not_before_s - loop.time()))
            began_s = time.thread_time()
            try:
                yield
            finally:
                took_s = time.thread_time() - began_s
                pause_s = min(PAUSES * took_s, _LONGEST_PAUSE_S)
                self._not_before_s = max(self._not_before_s, loop.time()) + pause_s
        finally:
            line.turn.release()
