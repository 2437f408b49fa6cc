"""The present rates of this process. Heartbeats carry them, so that any proxy can add up the fleet."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from proxy.coordinator.interface_fleet import ProxySums

_LOOKS = 6
_LEAST_APART_S = 1.0
_S_PER_HOUR = 3_600
_MILLION = 1_000_000
LARGEST = 999_999_999_999
"""Largest number in a heartbeat: a terabyte a second, or a million US dollars an hour."""


class Totals(NamedTuple):
    """Counters of this process since its start."""

    produced: float
    fetched: float
    crossed: float
    crossing_usd: float
    saved_usd: float
    storage_usd: float


class RecentSums:
    """Rates over the last looks at the counters, which are a second apart at least."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Totals]] = deque(maxlen=_LOOKS)
        self._connections = 0

    def take(self, at_s: float, totals: Totals, connections: int) -> None:
        """Take one look, at a time by the event loop's clock."""
        self._connections = connections
        if not self._looks or at_s - self._looks[-1][0] >= _LEAST_APART_S:
            self._looks.append((at_s, totals))

    def now(self) -> ProxySums | None:
        """Return the present rates; None before the second look."""
        if len(self._looks) < 2:
            return None
        (began_s, first), (ended_s, last) = self._looks[0], self._looks[-1]
        per_second = [(after - before) / (ended_s - began_s) for before, after in zip(first, last, strict=True)]
        per_hour = [usd * _S_PER_HOUR * _MILLION for usd in per_second[3:]]
        rates = (*per_second[:3], *per_hour, self._connections)
        return ProxySums(*(min(max(round(rate), 0), LARGEST) for rate in rates))
