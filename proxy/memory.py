"""One budget of bytes for everything that requests hold in memory; who finds it spent waits in line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be held at a time. First come, first served: a large request is not overtaken for ever."""

    __slots__ = ("_serving", "_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._serving = False

    def try_take(self, size: int, room_again: Callable[[], None]) -> bool:
        """Take `size` bytes if they are free and nobody waits; if not, `room_again` is called when their turn comes.

        `room_again` asks anew, or does nothing where the bytes are no longer wanted. A request larger than the whole
        budget is let in alone.
        """
        if self._fits(size) and (self._serving or not self._waiting):
            self.used_bytes += size
            return True
        self._waiting.append((size, room_again))
        return False

    def give_back(self, size: int) -> None:
        """Return bytes that were taken, and serve those that wait, in their order."""
        self.used_bytes -= size
        if self._serving:
            return
        self._serving = True
        try:
            while self._waiting and self._fits(self._waiting[0][0]):
                self._waiting.popleft()[1]()
        finally:
            self._serving = False

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self.limit_bytes or not self.used_bytes
