"""The time that a process takes to rebuild parts of a view from the journal, for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proxy.coordinator.clock import running_ms


class Rebuilds:
    """Rebuilds of shards, and of the registry, by this process: from a snapshot, or from the journal's first record."""

    def __init__(self) -> None:
        self.done = 0
        """Rebuilds that have ended, with or without success."""
        self._last_ms = 0
        self._began_ms: dict[int, int] = {}

    @property
    def seconds(self) -> float:
        """Return how long the rebuild under way has taken so far, the longest one of several; else the last one."""
        now_ms = running_ms()
        return max((now_ms - began_ms for began_ms in self._began_ms.values()), default=self._last_ms) / 1000

    @contextmanager
    def of(self, partition: int) -> Iterator[None]:
        """Count the time of the context as a rebuild."""
        self._began_ms[partition] = running_ms()
        try:
            yield
        finally:
            self._last_ms = running_ms() - self._began_ms.pop(partition)
            self.done += 1
