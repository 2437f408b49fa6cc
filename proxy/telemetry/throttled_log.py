"""Log lines that clients or an outage could cause by the thousand: one a second, with how many were left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

import structlog

log = structlog.get_logger()
_INTERVAL_S = 1.0
NAMES_SHOWN = 10
"""Maximum number of client-supplied names in a line, because a client may name thousands."""


class ThrottledLog:
    """Logs each event at most once a second; `more_like_it` counts the lines that were left out since the last one."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Take `now_s`, which returns the seconds of a monotonic clock."""
        self._now_s = now_s
        self._last_s: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warning(self, event: str, **values: Any) -> None:
        """Log a line, or count it as left out. `event` has to be from a fixed set, because each one is kept."""
        if self._is_due(event):
            log.warning(event, more_like_it=self._left_out.pop(event, 0), **values)

    def error(self, event: str, **values: Any) -> None:
        """Do the same as `warning`, for an event that somebody must look after."""
        if self._is_due(event):
            log.error(event, more_like_it=self._left_out.pop(event, 0), **values)

    def _is_due(self, event: str) -> bool:
        now_s = self._now_s()
        if now_s - self._last_s.get(event, -inf) < _INTERVAL_S:
            self._left_out[event] += 1
            return False
        self._last_s[event] = now_s
        return True
