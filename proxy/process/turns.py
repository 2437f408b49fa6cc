"""Long work on the event loop, in slices: one slice, of one piece of work, and then a rest for everybody else.

A request may name 250,000 partitions, which take seconds of the one loop that serves all clients. A thread would not
help: it holds the interpreter as the loop does. So such work is cut, and all of it in the process takes turns. However
many clients send large requests, no two slices follow each other without a rest that is as long as a slice.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from proxy.wire.steps import Result, Steps


class Turns:
    """Gives turns to long work, first come, first served."""

    def __init__(self, slice_s: float) -> None:
        self.slice_s = slice_s
        """How long a turn lasts, and the rest before it."""
        self._last_in_line = asyncio.Lock()

    async def next(self) -> float:
        """Wait for a turn. It begins when this returns; it ends at the time (of `perf_counter`) that is returned."""
        async with self._last_in_line:
            await asyncio.sleep(self.slice_s)
        return perf_counter() + self.slice_s

    async def run(self, steps: Steps[Result]) -> Result:
        """Do the work in as many turns as it takes."""
        while True:
            until_s = await self.next()
            try:
                while perf_counter() < until_s:
                    next(steps)
            except StopIteration as done:
                result: Result = done.value
                return result
