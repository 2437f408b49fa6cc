"""Brokers that accept connections, or did, and do not answer: their machine hangs or is gone."""

from __future__ import annotations

import time
from collections.abc import Callable

KEPT_S = 3.0
"""Time for which a broker counts as silent after it was last noticed. A trial every second notices it again."""


class SilentBrokers:
    """The node IDs of silent brokers, each for a short time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until_s: dict[int, float] = {}

    def note(self, node_id: int) -> None:
        """Take note that the broker does not answer."""
        self._until_s[node_id] = self._now() + KEPT_S

    def clear(self, node_id: int) -> None:
        """Take note that the broker answers again."""
        self._until_s.pop(node_id, None)

    def __contains__(self, node_id: int) -> bool:
        until_s = self._until_s.get(node_id)
        return until_s is not None and self._now() < until_s
