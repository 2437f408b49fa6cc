"""The findings about the snapshots of a journal: whether an empty store could be rebuilt at this moment."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.coordinator.interface_journal import Journal
from proxy.snapshots.stored import StoredSnapshots
from proxy.storage.interface import ObjectStorage


@dataclass(frozen=True, slots=True)
class SnapshotVerdict:
    """The finding about one partition of the journal."""

    partition: int
    start: int
    """Position of the journal's oldest record."""
    end: int
    """Position after its newest record."""
    positions: tuple[int, ...]
    """Positions of the readable snapshots, the newest first."""

    @property
    def records_after(self) -> int:
        """Return the number of records that a rebuild applies after the snapshot."""
        return self.end - max(self.positions, default=0)

    @property
    def problem(self) -> str | None:
        """Return why the partition can't be rebuilt; None if it can."""
        newest = max(self.positions, default=0)
        if newest >= self.start:
            return None
        found = f"its newest snapshot is of position {newest}" if self.positions else "it has no readable snapshot"
        return (
            f"partition {self.partition} of the journal begins at position {self.start}, and {found}: an emptied store "
            "can't be rebuilt; do not stop the store before a running proxy has taken a snapshot, see snapshot_damaged "
            "in its log"
        )


async def examine_snapshots(storage: ObjectStorage, journal: Journal, partitions: int) -> tuple[SnapshotVerdict, ...]:
    """Look at the manifests and the parts' sizes; nothing is written. Raises StorageError and JournalUnavailable."""
    snapshots = StoredSnapshots(storage, journal)
    found = []
    for partition in range(partitions):
        positions = tuple(one.manifest.position for one in await snapshots.kept(partition))
        start, end = await journal.start(partition), await journal.end(partition)
        found.append(SnapshotVerdict(partition, start, end, positions))
    return tuple(found)
