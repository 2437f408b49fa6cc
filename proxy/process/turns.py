"""Long work on the event loop, in slices: one slice, of one piece of work, and then a rest for everybody else.

A request may name 100,000 partitions, which take seconds of the one loop that serves all clients. A thread would not
help: it holds the interpreter as the loop does. So such work is cut, and all of it in the process takes turns. However
many clients send large requests, no two slices follow each other without a rest that is as long as a slice.

Such work holds very many objects for a short time. A full pass of Python's garbage collector over 50,000 elements would
stop the loop for tens of milliseconds, so full passes are put off for some seconds. The passes over new objects go on.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Generator
from time import perf_counter

from proxy.wire.primitives import Buffer
from proxy.wire.steps import Result, Steps, begin

_PUT_OFF_S = 30.0
"""Time for which full passes of the garbage collector are put off when long work begins."""
_NEVER = 2**31 - 1


class Turns:
    """Gives turns to long work, first come, first served."""

    def __init__(self, slice_s: float) -> None:
        self.slice_s = slice_s
        """How long a turn lasts, and the rest before it."""
        self._last_in_line = asyncio.Lock()
        self._full_passes: asyncio.TimerHandle | None = None
        """Lets full passes of the garbage collector happen again."""

    async def next(self) -> float:
        """Wait for a turn. It begins when this returns; it ends at the time (of `perf_counter`) that is returned."""
        if self._full_passes is None:
            self._put_off_full_passes()
        async with self._last_in_line:
            await asyncio.sleep(self.slice_s)
        return perf_counter() + self.slice_s

    async def do(self, steps: Steps[Result]) -> Result:
        """Do work that is mostly short: at once, or in turns if it turns out to be long."""
        begun = begin(steps)
        return await self.run(begun) if isinstance(begun, Generator) else begun

    async def rewritten(self, result: list[Buffer] | Steps[list[Buffer]]) -> list[Buffer]:
        """Return what a rewrite of a broker's answer returned, or do its work."""
        return await self.do(result) if isinstance(result, Generator) else result

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

    def _put_off_full_passes(self) -> None:
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], _NEVER)

        def again() -> None:
            self._full_passes = None
            gc.set_threshold(*thresholds)

        self._full_passes = asyncio.get_running_loop().call_later(_PUT_OFF_S, again)


def finish(steps: Steps[None]) -> None:
    """Do work that must be done, and that nobody waits for, in steps of its own on the loop."""
    try:
        next(steps)
    except StopIteration:
        return
    asyncio.get_running_loop().call_soon(finish, steps)
