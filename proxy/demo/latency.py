"""Percentiles of any number of latencies in little memory."""

from __future__ import annotations

import math
from collections import Counter

PRECISION = 0.01
"""Maximum relative error of a percentile."""

_LOG_BASE = math.log1p(2 * PRECISION)


class Latencies:
    """A histogram whose buckets grow by the same factor, so the relative error is the same for short and long ones."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0

    def add(self, microseconds: int) -> None:
        """Count one; what is below a microsecond counts as one."""
        self._buckets[int(math.log(microseconds) / _LOG_BASE) if microseconds > 1 else 0] += 1
        self.count += 1

    def percentile_ms(self, percent: float) -> float | None:
        """Return the smallest latency, in milliseconds, that `percent` of all do not exceed; None if there is none."""
        rank = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                # The middle of the bucket, in proportion: half its width off at most.
                return math.exp((bucket + 0.5) * _LOG_BASE) / 1000
        return None
