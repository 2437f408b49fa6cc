"""One budget of bytes for everything that requests hold in memory; who finds it spent waits in line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be held at a time. First come, first served: a large request is not overtaken for ever."""

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def try_take(self, size: int, room_again: Callable[[], None] | None = None) -> bool:
        """Take `size` bytes if they are free; if not, `room_again` is called, once, when asking again makes sense.

        A request larger than the whole budget is let in alone.
        """
        if self.used_bytes + size <= self.limit_bytes or not self.used_bytes:
            self.used_bytes += size
            return True
        if room_again is not None:
            self._waiting.append(room_again)
        return False

    def give_back(self, size: int) -> None:
        """Return bytes that were taken, and wake those that wait while there is room."""
        self.used_bytes -= size
        while self._waiting and self.used_bytes < self.limit_bytes:
            before = self.used_bytes
            self._waiting.popleft()()
            if self.used_bytes == before:
                break
