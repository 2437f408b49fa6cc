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

import structlog

from proxy.config import Garbage as GarbageSettings
from proxy.coordinator.interface import Coordinator
from proxy.stats import Stats
from proxy.storage.interface import ObjectStorage
from proxy.wal.segment import segment_key

log = structlog.get_logger()

SEGMENTS_PER_STEP = 1_000
_SEGMENT_KEY = re.compile("[0-9a-f]{2}/([0-9a-f]{32})")


class GarbageCollector:
    """Deletes what is not needed. Every step may raise CoordinatorUnavailable and StorageError, and be done again."""

    def __init__(
        self, coordinator: Coordinator, storage: ObjectStorage, settings: GarbageSettings, stats: Stats
    ) -> None:
        self._coordinator = coordinator
        self._storage = storage
        self._settings = settings
        self._stats = stats

    async def collect(self) -> int:
        """Tombstone what has become garbage, delete what was tombstoned long enough ago; how many objects went."""
        garbage = await self._coordinator.garbage(0, SEGMENTS_PER_STEP)
        if garbage:
            await self._coordinator.tombstone(garbage)
        dead = await self._coordinator.tombstoned(self._settings.grace_ms, SEGMENTS_PER_STEP)
        if dead:
            await self._storage.delete([segment_key(segment) for segment in dead])
            await self._coordinator.release(dead)
            self._stats.segments_deleted += len(dead)
            log.debug("segments_deleted", count=len(dead))
        return len(dead)

    async def sweep_orphans(self) -> int:
        """Tombstone old objects that no row uses; how many. `collect` deletes them when their grace period is over.

        Only objects named as segments are looked at: whatever else is kept under the prefix is not ours.
        """
        found, orphans = 0, []
        newest_ms = time.time_ns() // 1_000_000 - self._settings.orphan_age_ms
        async for stored in self._storage.objects():
            named = _SEGMENT_KEY.fullmatch(stored.key)
            if named is None or stored.modified_ms > newest_ms:
                continue
            orphans.append(bytes.fromhex(named[1]))
            if len(orphans) == SEGMENTS_PER_STEP:
                found += await self._tombstone_unused(orphans)
                orphans = []
        found += await self._tombstone_unused(orphans)
        if found:
            log.info("orphans_found", count=found, remedy="none: they are deleted when the grace period is over")
        return found

    async def _tombstone_unused(self, segments: list[bytes]) -> int:
        used = await self._coordinator.used(segments) if segments else []
        unused = [segment for segment, in_use in zip(segments, used, strict=True) if not in_use]
        return len(await self._coordinator.tombstone(unused)) if unused else 0
