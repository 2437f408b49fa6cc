"""Rollups that are older than `rollups.retention_ms` go; the housekeeper of the fleet does it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from proxy.accounting.rollups.files import FOLDER, day_of
from proxy.storage.interface import ObjectsLeft, ObjectStorage

log = structlog.get_logger()

INTERVAL_MS = 6 * 3_600_000
"""How often it is looked for."""
_KEYS_PER_STEP = 1_000
_MOST_LEFT = 100_000
"""Number of objects that storage refuses to delete, after which the sweep ends."""


class RollupExpiry:
    """Deletes rollups, a day at a time; may be done by two proxies at once."""

    def __init__(self, storage: ObjectStorage, *, retention_ms: int, now_ms: Callable[[], int]) -> None:
        """`now_ms`: milliseconds since 1970."""
        self._storage = storage
        self.retention_ms = retention_ms
        self._now_ms = now_ms

    async def sweep(self) -> int:
        """How many were deleted: those of days that ended so long ago. Raises StorageError.

        Raises ObjectsLeft, too, where storage refuses to delete some: after the others were deleted.
        """
        newest = datetime.fromtimestamp((self._now_ms() - self.retention_ms) / 1000, UTC).date()
        deleted, left, step = 0, dict[str, str](), list[str]()
        async for stored in self._storage.objects(FOLDER):
            day = day_of(stored.key)
            if day is not None and day < newest:
                step.append(stored.key)
            if len(step) == _KEYS_PER_STEP:
                deleted += await self._delete(step, left)
                step = []
                if len(left) >= _MOST_LEFT:
                    break
        deleted += await self._delete(step, left)
        if deleted:
            log.info("rollups_expired", count=deleted)
        if left:
            raise ObjectsLeft(left)
        return deleted

    async def _delete(self, keys: list[str], left: dict[str, str]) -> int:
        """How many are gone; the others are `left`, with the reason."""
        if not keys:
            return 0
        try:
            await self._storage.delete(keys)
        except ObjectsLeft as error:
            # The next listing begins with them again: those behind them have to go all the same.
            left.update(error.reasons)
            return len(keys) - len(error.reasons)
        return len(keys)
