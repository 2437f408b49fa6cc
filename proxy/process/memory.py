"""One budget of bytes for everything that requests hold in memory; who finds it spent waits in line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be held at a time. First come, first served: a large request is not overtaken forever."""

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    @property
    def contended(self) -> bool:
        """Return whether somebody waits."""
        return bool(self._waiting)

    def has_room(self, size: int) -> bool:
        """Return whether `try_take` would take `size` bytes now."""
        return not self._waiting and self._fits(size)

    def try_take(self, size: int, granted: Callable[[], bool]) -> bool:
        """Take `size` bytes if they are free and nobody waits; return whether they were taken.

        If not, they are taken later, and `granted` is called, which returns whether they are still wanted. A request
        larger than the whole budget is let in alone.
        """
        if self.has_room(size):
            self.used_bytes += size
            return True
        self._waiting.append((size, granted))
        return False

    def withdraw(self, granted: Callable[[], bool]) -> None:
        """Stop waiting for the bytes that `try_take` was called for with `granted`; later requests may fit now."""
        self._waiting = deque(one for one in self._waiting if one[1] != granted)
        self.give_back(0)

    def take(self, size: int) -> None:
        """Take `size` bytes that are already in memory, even above the limit; later requests wait longer."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        """Return bytes that were taken, and grant waiting requests theirs, in their order."""
        self.used_bytes -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, granted = self._waiting.popleft()
            self.used_bytes += wanted
            if not granted():
                self.used_bytes -= wanted

    def resize(self, limit_bytes: int) -> None:
        """Set another limit: waiting requests that now fit are granted.

        If the new limit is lower than what is taken, no request is granted until enough has been given back.
        """
        self.limit_bytes = limit_bytes
        self.give_back(0)

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self.limit_bytes or not self.used_bytes
