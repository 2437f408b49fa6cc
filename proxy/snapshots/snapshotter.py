"""Takes snapshots of the coordinator's store and trims the journal: work that one proxy does for all.

A snapshot is complete when its manifest is there. Two snapshots of each partition are kept, and the journal is trimmed
to the position of the older one, after both manifests were read back. So each step may be the last one of a proxy.
"""

from __future__ import annotations

import structlog

from proxy.config.journal import Journal as Settings
from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.copying import CopyGivenUp, copy_registry, copy_shard
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Journal, JournalUnavailable
from proxy.coordinator.view import View
from proxy.snapshots.manifest import Kept, oldest_position
from proxy.snapshots.stored import StoredSnapshots

log = structlog.get_logger()

KEPT = 2
"""Snapshots of each partition that are kept: the older one is loaded if the newer one is damaged."""
CHECK_MS = 5_000
"""Time between two looks for partitions that need a snapshot."""
STEP_BYTES = 131_072
"""About how much of a shard one call copies, while the store serves nobody else."""


class Snapshotter:
    """Takes the snapshots that are due."""

    def __init__(self, settings: Settings, view: View, journal: Journal, snapshots: StoredSnapshots) -> None:
        self.kept: dict[int, list[Kept]] = {}
        """Snapshots by partition, the newest first, as far as this proxy has looked."""
        self.failed = 0
        """Snapshots that could not be taken."""
        self.behind: dict[int, int] = {}
        """Records after the newest snapshot by partition, as of the last look."""
        self.lag: dict[int, int] = {}
        """Records by partition that the journal had at the look before, and that the store had not applied at the last
        look."""
        self._ends: dict[int, int] = {}
        self._due_since_ms: dict[int, int] = {}
        self._settings = settings
        self._view = view
        self._journal = journal
        self._snapshots = snapshots

    async def sweep(self) -> None:
        """Take a snapshot of each partition for which one is due.

        A partition that fails does not keep the others from theirs. Raises StorageError and CoordinatorUnavailable of
        the first one that failed.
        """
        failure: CoordinatorUnavailable | None = None
        for partition in range(self._view.registry + 1):
            try:
                await self._look_after(partition)
            except CopyGivenUp as error:
                self.failed += 1
                log.warning("snapshot_given_up", partition=partition, reason=str(error), remedy="none; it is retried")
            except (CoordinatorUnavailable, JournalUnavailable) as error:
                self.failed += 1
                failure = failure or CoordinatorUnavailable(f"no snapshot of partition {partition}: {error}")
        if failure is not None:
            raise failure

    @property
    def overdue_seconds(self) -> float:
        """Return how long the snapshot that waits longest has been due; 0 if none is due."""
        since_ms = min(self._due_since_ms.values(), default=None)
        return 0.0 if since_ms is None else max(0.0, (wall_clock_ms() - since_ms) / 1000)

    @property
    def size_bytes(self) -> int:
        """Return the size of the newest snapshots of all partitions."""
        return sum(kept[0].size_bytes for kept in self.kept.values() if kept)

    def forget(self) -> None:
        """Drop what was found: another proxy takes the snapshots from now on."""
        self.kept.clear()
        self.behind.clear()
        self.lag.clear()
        self._ends.clear()
        self._due_since_ms.clear()

    async def _look_after(self, partition: int) -> None:
        end = await self._journal.end(partition)
        await self._look_at_lag(partition, end)
        kept = self.kept.get(partition)
        if kept is None:
            # Another proxy may have taken some, before this one got the lease.
            kept = self.kept[partition] = await self._snapshots.kept(partition)
        self.behind[partition] = end - (kept[0].manifest.position if kept else 0)
        if not self._is_due(kept, end):
            return
        self._due_since_ms.setdefault(partition, wall_clock_ms())
        del self.kept[partition]
        await self.take(partition)
        await self._tidy(partition)
        self._due_since_ms.pop(partition, None)

    async def _look_at_lag(self, partition: int, end: int) -> None:
        """Apply records that have waited since the last look: the proxy that appended them may have ended."""
        waiting = self._ends.get(partition, 0) - self._view.applied(partition)
        # A failed attempt leaves `applied` at the end: then the figure before it stands.
        self.lag[partition] = self.lag.get(partition, 0) or max(0, waiting)
        self._ends[partition] = end
        if not self.lag[partition]:
            return
        try:
            await self._view.bring_up(partition)
        except CoordinatorUnavailable as error:
            log.debug("records_wait", partition=partition, records=self.lag[partition], reason=str(error))
        else:
            self.lag[partition] = 0

    def _is_due(self, kept: list[Kept], end: int) -> bool:
        if not kept:
            return end > 0
        newest = kept[0]
        records = end - newest.manifest.position
        age_ms = wall_clock_ms() - newest.written_ms
        return records >= self._settings.snapshot_records or (
            records > 0 and age_ms >= self._settings.snapshot_interval_ms
        )

    async def take(self, partition: int) -> None:
        """Take a snapshot of a partition now, unless nothing was ever written to it. Raises as `sweep`, CopyGivenUp."""
        writer = self._snapshots.write(partition)
        if partition == self._view.registry:
            copied = await copy_registry(self._view, writer.keep)
        else:
            copied = await copy_shard(self._view, partition, STEP_BYTES, writer.keep)
        if copied is not None:
            await writer.complete(copied.position, copied.state)

    async def _tidy(self, partition: int) -> None:
        kept = (await self._snapshots.kept(partition))[:KEPT]
        self.kept[partition] = kept
        if len(kept) < KEPT:
            return
        await self._snapshots.delete_others(partition, kept)
        start = oldest_position(kept)
        if await self._journal.start(partition) < start:
            await self._journal.trim(partition, start)
