"""Topics that this proxy creates on demand at the moment, and topics that the brokers rejected a moment ago."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

_AGAIN_S, _WARN_AGAIN_S = 1.0, 60.0
_MAX_REMEMBERED = 10_000


class OnDemand:
    """Names that are being created, and names that were rejected: clients retry every 100 ms."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._now = now
        self._under_way: set[str] = set()
        self._refused: dict[str, float] = {}
        self._warned: dict[str, float] = {}

    def begin(self, names: Iterable[str]) -> list[str]:
        """Return the names to create now. The caller makes sure that `end` is called."""
        now_s = self._now()
        chosen = [
            name
            for name in names
            if name not in self._under_way and now_s - self._refused.get(name, -math.inf) >= _AGAIN_S
        ]
        self._under_way.update(chosen)
        return chosen

    def end(self, names: Iterable[str], *, refused: Iterable[str]) -> None:
        """End what was begun. Names in `refused` are not retried at once, whichever client asks."""
        self._under_way.difference_update(names)
        for name in refused:
            _remember(self._refused, name, self._now())

    def warns(self, name: str) -> bool:
        """Return True if the log is to report again that the name was rejected."""
        due = self._now() - self._warned.get(name, -math.inf) >= _WARN_AGAIN_S
        if due:
            _remember(self._warned, name, self._now())
        return due


def _remember(times: dict[str, float], name: str, now_s: float) -> None:
    """Store the time, newest last; evict the oldest."""
    times.pop(name, None)
    times[name] = now_s
    while len(times) > _MAX_REMEMBERED:
        del times[next(iter(times))]
