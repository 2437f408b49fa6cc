"""Where the bytes of a row come from: the rack-local cache of the tail, or, for old rows, a small one beside it.

Readers of old data, however many, share the budget of the small cache (bytes, and GETs at a time) and leave the tail's
alone: a reader that goes through a whole log would push out of it what all others are about to read.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.cache import BlockCache, PatchedRun
from proxy.coordinator.interface import Row


class RowReader:
    """Reads rows. `cold_after_ms`: rows that were appended longer ago are old; `now_ms`: milliseconds since 1970."""

    def __init__(self, tail: BlockCache, cold: BlockCache, *, cold_after_ms: int, now_ms: Callable[[], int]) -> None:
        self._tail = tail
        self._cold = cold
        self._cold_after_ms = cold_after_ms
        self._now_ms = now_ms

    def cached(self, row: Row) -> PatchedRun | None:
        """The row's batches if they are in memory, at once. An old row may still be in the tail's cache."""
        run = self._tail.cached(row)
        if run is None and self._is_cold(row):
            run = self._cold.cached(row)
        return run

    async def run(self, row: Row) -> PatchedRun:
        """The row's batches; raises as `BlockCache.run` does: ObjectMissing and StorageError."""
        if not self._is_cold(row):
            return await self._tail.run(row)
        return self._tail.cached(row) or await self._cold.run(row)

    def _is_cold(self, row: Row) -> bool:
        return self._now_ms() - row.append_time_ms > self._cold_after_ms
