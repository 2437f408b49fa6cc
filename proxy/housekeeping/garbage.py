"""Give back object storage: segments that no row uses, and objects that were uploaded but never committed.

An object is deleted in three steps, any of which may be the last of a proxy that dies: another proxy goes on.

1. The segment is tombstoned in every shard of the coordinator; a shard that uses it refuses. From then on no commit of
   it is accepted, so it stays unused for good.
2. The grace period passes: readers that have its coordinates finish.
3. The object is deleted, then the tombstones are.

A coordinator that can't vouch for a shard (CoordinatorUnavailable, ShardFenced) stops it all before a deletion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable

import structlog

from proxy.config import Garbage as GarbageSettings
from proxy.coordinator.interface import Coordinator
from proxy.stats import Stats
from proxy.storage.interface import ObjectStorage
from proxy.wal.segment import SEGMENT_KEY, segment_key

log = structlog.get_logger()

SEGMENTS_PER_STEP = 1_000
_MUCH = SEGMENTS_PER_STEP // 2
"""A step that does so much has more to follow: what somebody else left half done may have taken up the other places."""


async def _never() -> bool:
    return False


class GarbageCollector:
    """Deletes what is not needed. Every step may raise CoordinatorUnavailable and StorageError, and be done again."""

    def __init__(
        self, coordinator: Coordinator, storage: ObjectStorage, settings: GarbageSettings, stats: Stats
    ) -> None:
        self._coordinator = coordinator
        self._storage = storage
        self._settings = settings
        self._stats = stats

    async def collect(self, goes_on: Callable[[], Awaitable[bool]] = _never) -> int:
        """Tombstone what has become garbage, delete what was tombstoned long enough ago; how many objects went.

        `goes_on`: asked after each step that leaves more to do, whether to do that too.
        """
        deleted = 0
        while True:
            tombstoned, gone = await self._step()
            deleted += gone
            if max(tombstoned, gone) < _MUCH or not await goes_on():
                return deleted

    async def _step(self) -> tuple[int, int]:
        """How many segments were garbage, and how many objects were deleted."""
        garbage = await self._coordinator.garbage(0, SEGMENTS_PER_STEP)
        if garbage:
            await self._coordinator.tombstone(garbage)
        dead = await self._coordinator.tombstoned(self._settings.grace_ms, SEGMENTS_PER_STEP)
        if dead:
            await self._storage.delete([segment_key(segment) for segment in dead])
            await self._coordinator.release(dead)
            self._stats.segments_deleted += len(dead)
            log.debug("segments_deleted", count=len(dead))
        return len(garbage), len(dead)

    async def sweep_orphans(self) -> int:
        """Tombstone old objects that no row uses; how many. `collect` deletes them when their grace period is over.

        Only objects named as segments are looked at: whatever else is kept under the prefix is not ours. Where not one
        object is in use nothing is done: more likely the store is another one, or was emptied, than that all are
        orphans, and without its objects a store that is brought back is worth nothing.
        """
        newest_ms = time.time_ns() // 1_000_000 - self._settings.orphan_age_ms
        any_used = False
        orphans: list[bytes] = []
        step: dict[bytes, bool] = {}
        """Segments to ask about, and whether each is old."""
        async for stored in self._storage.objects():
            named = re.fullmatch(SEGMENT_KEY, stored.key)
            if named is None:
                continue
            step[bytes.fromhex(named[1])] = stored.modified_ms <= newest_ms
            if len(step) == SEGMENTS_PER_STEP:
                any_used |= await self._sort(step, orphans)
                step = {}
        any_used |= await self._sort(step, orphans)
        if orphans and not any_used:
            log.error(
                "orphans_left_alone",
                count=len(orphans),
                reason="the coordinator uses none of the objects in storage",
                remedy="see that redis.url and storage.url belong together; what is surely useless delete by hand",
            )
            return 0
        found = 0
        for start in range(0, len(orphans), SEGMENTS_PER_STEP):
            # A commit may have come meanwhile: each shard looks again.
            found += len(await self._coordinator.tombstone(orphans[start : start + SEGMENTS_PER_STEP]))
        if found:
            log.info("orphans_found", count=found, remedy="none: they are deleted when the grace period is over")
        return found

    async def _sort(self, step: dict[bytes, bool], orphans: list[bytes]) -> bool:
        """Add to `orphans` the old ones that are not in use; whether any is in use."""
        used = await self._coordinator.used(list(step)) if step else []
        orphans += [segment for (segment, old), in_use in zip(step.items(), used, strict=True) if old and not in_use]
        return any(used)
