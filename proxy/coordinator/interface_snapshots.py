"""The interface of snapshots: the state of one partition of the journal, at one position, kept in object storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class SnapshotDamaged(Exception):
    """A part of the snapshot is missing, differs from its checksum, or can't be read."""


class Snapshot(Protocol):
    """A snapshot that may be loaded."""

    @property
    def position(self) -> int:
        """Return the position of the next record to apply."""

    @property
    def state(self) -> bytes:
        """Return the shard's packed state; empty for the registry."""

    def pages(self) -> AsyncIterator[bytes]:
        """Return the pages in the order in which they were copied. Raises SnapshotDamaged in between."""


class Snapshots(Protocol):
    """All snapshots of a journal."""

    async def newest_first(self, partition: int) -> Sequence[Snapshot]:
        """Return the snapshots of a partition that this release can read. Raises CoordinatorUnavailable."""
