"""Answer one request after the other, with pauses: a client that polls the admin port must not slow Kafka clients down.

The event loop that serves Kafka clients also makes the answers. After each answer the port pauses for PAUSES times the
processor time of the answer. So the port takes a small part of the loop at most, however many clients poll it. A
request is rejected if too many others wait already. There may be several lines, so that urgent requests do not wait
behind slow requests; all lines share the pauses.
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
    """Raised if too many requests wait already."""


class _Line:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0


class Pace:
    """Admits one request at a time in each line."""

    def __init__(self) -> None:
        self._lines: defaultdict[str, _Line] = defaultdict(_Line)
        self._not_before_s = 0.0

    @asynccontextmanager
    async def turn(self, name: str = "") -> AsyncIterator[None]:
        """Wait for a turn in the line of that name. Raises Busy."""
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
