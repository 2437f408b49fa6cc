"""Give back object storage: segments that no row uses, and objects that were uploaded but never committed.

An object is deleted in three steps, any of which may be the last of a proxy that dies: another proxy goes on.

1. The segment is tombstoned in every shard of the coordinator; a shard that uses it refuses. From then on no commit of
   it is accepted, so it stays unused for good.
2. The grace period passes: readers that have its coordinates finish.
3. The object is deleted, then the tombstones are.

A coordinator that can't vouch for a shard (CoordinatorUnavailable, ShardFenced) stops it all before a deletion. When a
loss of the store has been accepted, what looks like an orphan stays for `orphan_age_ms` more (`accepted_loss.py`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import structlog

from proxy.config import Garbage as GarbageSettings
from proxy.coordinator.interface import Coordinator
from proxy.diskless.wal.segment import SEGMENT_KEY, segment_key
from proxy.housekeeping.accepted_loss import loss_accepted_ms
from proxy.housekeeping.storage_clock import storage_now_ms
from proxy.storage.interface import ObjectsLeft, ObjectStorage
from proxy.telemetry.stats import Stats

log = structlog.get_logger()

SEGMENTS_PER_STEP = 1_000
_MUCH = SEGMENTS_PER_STEP // 2
"""A step that does so much has more to follow: what somebody else left half done may have taken up the other places."""
_MOST_LEFT = 10 * SEGMENTS_PER_STEP
"""Number of undeletable objects above which the cause is hardly the objects: the storage accepts no deletions."""


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

        An object that can't be deleted keeps its tombstone for the next round, and holds up no other.

        `goes_on`: asked after each step that leaves more to do, whether to do that too.
        """
        deleted = 0
        left: dict[bytes, str] = {}
        while True:
            tombstoned, tried, gone = await self._step(left)
            deleted += gone
            if max(tombstoned, tried) < _MUCH or len(left) > _MOST_LEFT or not await goes_on():
                break
        if left:
            segment, reason = next(iter(left.items()))
            log.warning(
                "segments_not_deleted",
                count=len(left),
                first=segment_key(segment),
                reason=reason,
                remedy="allow the proxy to delete these objects under storage.url; it retries by itself",
            )
        return deleted

    async def _step(self, left: dict[bytes, str]) -> tuple[int, int, int]:
        """How many segments were garbage, how many objects were to be deleted, and how many of them went.

        `left`: segments whose objects could not be deleted in this round, and why; these are added.
        """
        garbage = await self._coordinator.garbage(0, SEGMENTS_PER_STEP)
        if garbage:
            await self._coordinator.tombstone(garbage)
        # They are the oldest, so as many more are asked for.
        oldest = await self._coordinator.tombstoned(self._settings.grace_ms, SEGMENTS_PER_STEP + len(left))
        dead = [segment for segment in oldest if segment not in left]
        gone = dead
        if dead:
            try:
                await self._storage.delete([segment_key(segment) for segment in dead])
            except ObjectsLeft as error:
                left |= {one: error.reasons[segment_key(one)] for one in dead if segment_key(one) in error.reasons}
                gone = [segment for segment in dead if segment not in left]
        if gone:
            await self._coordinator.release(gone)
            self._stats.segments_deleted += len(gone)
            log.debug("segments_deleted", count=len(gone))
        return len(garbage), len(dead), len(gone)

    async def sweep_orphans(self) -> int:
        """Tombstone old objects that no row uses; how many. `collect` deletes them when their grace period is over.

        Only objects named as segments are looked at: whatever else is kept under the prefix is not ours. Where not one
        object is in use nothing is done: more likely the store is another one, or was emptied, than that all are
        orphans, and without its objects a store that is brought back is worth nothing.
        """
        newest_ms = await storage_now_ms(self._storage) - self._settings.orphan_age_ms
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
                remedy="check that redis.url and storage.url belong together; delete objects that are surely "
                "useless by hand",
            )
            return 0
        if orphans and await self._loss_accepted_since(newest_ms):
            log.warning(
                "orphans_kept",
                count=len(orphans),
                reason="a loss of the coordinator's store was accepted less than garbage.orphan_age_ms ago",
                effect="they are deleted when that time is over, even if they are the only copies of records",
                remedy="before that, see docs/operations/lost-data.md",
            )
            return 0
        found = 0
        for start in range(0, len(orphans), SEGMENTS_PER_STEP):
            # A commit may have come meanwhile: each shard looks again.
            found += len(await self._coordinator.tombstone(orphans[start : start + SEGMENTS_PER_STEP]))
        if found:
            log.info("orphans_found", count=found, remedy="none; they are deleted when the grace period is over")
        return found

    async def _loss_accepted_since(self, since_ms: int) -> bool:
        """Asked when the coordinator has said what it uses: it says nothing between a loss and its acceptance."""
        accepted_ms = await loss_accepted_ms(self._storage)
        return accepted_ms is not None and accepted_ms > since_ms

    async def _sort(self, step: dict[bytes, bool], orphans: list[bytes]) -> bool:
        """Add to `orphans` the old ones that are not in use; whether any is in use."""
        used = await self._coordinator.used(list(step)) if step else []
        orphans += [segment for (segment, old), in_use in zip(step.items(), used, strict=True) if old and not in_use]
        return any(used)
