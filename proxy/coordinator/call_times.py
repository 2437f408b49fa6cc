"""How long the calls of a server take, as plain numbers that cost a call next to nothing."""

from __future__ import annotations

from bisect import bisect_left

CALL_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class CallTimes:
    """The calls of one server, in buckets by their time."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(CALL_BOUNDS_S) + 1)
        """Calls of each bucket, and of those beyond the last bound."""
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count a call, or calls that were sent together, whatever the answer is."""
        self.counts[bisect_left(CALL_BOUNDS_S, seconds)] += 1
        self.total_s += seconds
