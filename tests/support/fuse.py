"""A process that is killed after so many of its writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Killed(BaseException):
    """In the place of SIGKILL: nothing catches it."""


class Fuse:
    """Burns down with each write; at its end the process that wrote is no more."""

    def __init__(self, writes: int | None) -> None:
        self._left = writes
        self.writes = 0

    async def write(self, do: Callable[[], Awaitable[Any]]) -> Any:
        """Carry out, and perhaps die of it."""
        done = await do()
        self.writes += 1
        if self.writes == self._left:
            raise Killed
        return done
