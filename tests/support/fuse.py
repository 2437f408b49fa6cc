"""A simulated process that is killed after a given number of writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Killed(BaseException):
    """Stands in for SIGKILL: nothing catches it."""


class Fuse:
    """Counts writes. After the last allowed write, the process counts as killed."""

    def __init__(self, writes: int | None) -> None:
        self._left = writes
        self.writes = 0

    async def write(self, do: Callable[[], Awaitable[Any]]) -> Any:
        """Carry out a write. Raises Killed if it was the last one."""
        done = await do()
        self.writes += 1
        if self.writes == self._left:
            raise Killed
        return done
