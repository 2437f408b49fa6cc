"""Answers that clients have been sent and have not read: charged to the memory budget, and bounded in sum.

A client that reads more slowly than it is answered leaves whole answers in the write buffer of its connection. They are
charged as soon as they are written, so that requests of other clients wait rather than memory grow. Above the limit,
Fetches of diskless topics get what is free, and the connections of the slowest clients end: those that took the fewest
bytes a second since they fell behind. A client that has just fallen behind is given `limits.unread_grace_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from proxy.config import Limits
from proxy.process.memory import MemoryBudget

_SHARE = 4
"""At most one such part of the memory budget, however small that is: slow readers must not keep producers waiting."""


class Reader(Protocol):
    """A client connection, as far as its answers are concerned."""

    @property
    def unread_bytes(self) -> int:
        """Answers that have not left the process."""

    @property
    def unsent_bytes(self) -> int:
        """The part of them that was written, and that the client does not take."""

    @property
    def read_bytes(self) -> int:
        """Bytes that the client has taken so far."""


class _Behind:
    """One client that has not read all of its answers."""

    __slots__ = ("charged_bytes", "read_before", "since_s")

    def __init__(self, since_s: float, read_before: int) -> None:
        self.since_s = since_s
        self.read_before = read_before
        """Bytes that it had read when it fell behind."""
        self.charged_bytes = 0


class UnreadAnswers:
    """The unread answers of all connections. Connections report when theirs may have changed."""

    def __init__(self, memory: MemoryBudget, limits: Limits, end_slowest: Callable[[Any, int], None]) -> None:
        """`end_slowest` ends a connection; it gets its unread bytes for the log."""
        self.used_bytes = 0
        self._memory = memory
        self._limits = limits
        self._end_slowest = end_slowest
        self._behind: dict[Reader, _Behind] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit_bytes(self) -> int:
        """The most that unread answers may take."""
        return min(self._limits.max_unread_answer_bytes, self._memory.limit_bytes // _SHARE)

    @property
    def free_bytes(self) -> int:
        """Bytes that the next answer may take."""
        return max(self.limit_bytes - self.used_bytes, 0)

    def charge(self, connection: Reader) -> None:
        """Charge what the connection's client has not read now, in place of what was charged before."""
        size = connection.unread_bytes
        behind = self._behind.get(connection)
        if behind is None:
            if not size:
                return
            behind = _Behind(asyncio.get_running_loop().time(), connection.read_bytes)
            self._behind[connection] = behind
        self._set(connection, behind, size)
        if self._timer is None and self._behind:
            self._timer = asyncio.get_running_loop().call_later(self._limits.unread_grace_ms / 1000, self._look)

    def forget(self, connection: Reader) -> None:
        """The connection has ended: what it held is free."""
        behind = self._behind.get(connection)
        if behind is not None:
            self._set(connection, behind, 0)

    def look_once(self, now_s: float) -> None:
        """Charge what clients have read meanwhile to them no longer; above the limit, end the slowest ones."""
        for connection, behind in list(self._behind.items()):
            self._set(connection, behind, connection.unread_bytes)
        if self.used_bytes <= self.limit_bytes:
            return
        grace_s = self._limits.unread_grace_ms / 1000
        late = [
            (_bytes_a_second(connection, behind, now_s), -behind.charged_bytes, id(connection), connection)
            for connection, behind in self._behind.items()
            if connection.unsent_bytes and now_s - behind.since_s >= grace_s
        ]
        for *_, connection in sorted(late):
            if self.used_bytes <= self.limit_bytes:
                return
            unread_bytes = self._behind[connection].charged_bytes
            self.forget(connection)
            self._end_slowest(connection, unread_bytes)

    def _set(self, connection: Reader, behind: _Behind, size: int) -> None:
        change, behind.charged_bytes = size - behind.charged_bytes, size
        if not size:
            del self._behind[connection]
        self.used_bytes += change
        if change > 0:
            self._memory.take(change)
        else:
            self._memory.give_back(-change)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        self.look_once(loop.time())
        if self._behind:
            self._timer = loop.call_later(self._limits.unread_grace_ms / 1000, self._look)


def _bytes_a_second(connection: Reader, behind: _Behind, now_s: float) -> float:
    """How fast a client has read since it fell behind."""
    return (connection.read_bytes - behind.read_before) / max(now_s - behind.since_s, 1e-3)
