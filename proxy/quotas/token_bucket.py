"""How many bytes a client may move now, and how long it has to wait until it may again.

A bucket fills at the quota's rate and holds ten seconds of it: what brokers' windows of eleven samples of one second
(`quota.window.num`, `quota.window.size.seconds`) let through at once. Once that burst is spent, the rate is the quota's
and steady; a window's comes in waves, as a burst weighs until it drops out at once. It is the measure that KIP-599
brought for controller mutations (`TokenBucket` in Apache Kafka's metrics). Sans-io; seconds are monotonic.
"""

from __future__ import annotations

BURST_S = 10.0
"""`quota.window.num` less the sample that is being filled, times `quota.window.size.seconds`."""

_SHORTEST_WAIT_S = 0.001


class TokenBucket:
    """The bytes that one client, or all that share a quota, may still move. `limit` is in bytes per second."""

    __slots__ = ("_at_s", "_full", "_tokens")

    def __init__(self) -> None:
        self._full = True
        """True until something is taken: the level is then the limit's burst."""
        self._tokens = 0.0
        self._at_s = 0.0

    def take(self, size: int, limit: float, now_s: float) -> float:
        """Take `size` bytes, on credit if need be; the seconds until that is paid back, 0 if it was there."""
        self._tokens = self._level(limit, now_s) - size
        self._at_s, self._full = now_s, False
        return max(0.0, -self._tokens / limit)

    def available(self, limit: float, now_s: float) -> float:
        """Bytes that are there; 0 while credit is paid back."""
        return max(0.0, self._level(limit, now_s))

    def take_if_any(self, size: int, limit: float, now_s: float) -> float:
        """Take `size` bytes, on credit if necessary, if any are available; otherwise return the seconds until some are.

        So no batch is too large to be read, and a client that wants much is not held up by clients that take little at
        a time.
        """
        level = self._level(limit, now_s)
        if level <= 0:
            return max(-level / limit, _SHORTEST_WAIT_S)
        self.take(size, limit, now_s)
        return 0.0

    def is_full(self, limit: float, now_s: float) -> bool:
        """Return whether it is the same as a new bucket."""
        return self._level(limit, now_s) >= limit * BURST_S

    def _level(self, limit: float, now_s: float) -> float:
        capacity = limit * BURST_S
        return capacity if self._full else min(capacity, self._tokens + (now_s - self._at_s) * limit)
