"""The registry of diskless topics, read from the journal while the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Journal, JournalUnavailable, PositionTrimmed
from proxy.coordinator.interface_registry import RegistrySnapshot
from proxy.coordinator.interface_snapshots import SnapshotDamaged, Snapshots
from proxy.coordinator.journal_records import pack_record
from proxy.coordinator.loading import report_damage
from proxy.coordinator.registry_replay import RegistryReplay
from proxy.coordinator.view_calls import NOTHING_IN_THE_REGISTRY

MAX_READ_BYTES = 1 << 20
"""Records that are read from the journal at once."""


class RegistryFromJournal:
    """Reads the registry's partition of the journal. A snapshot is loaded once, and then only new records are read."""

    def __init__(
        self, journal: Journal, partition: int, snapshots: Snapshots | None, note: Callable[[int], None]
    ) -> None:
        """`note` is called with a position that the store's registry must have reached before it counts again."""
        self._journal = journal
        self._partition = partition
        self._snapshots = snapshots
        self._note = note
        self._replay = RegistryReplay(partition)
        self._reading = asyncio.Lock()

    async def read(self) -> RegistrySnapshot:
        """Return the registry with every change that was made before the call. Raises CoordinatorUnavailable.

        A leader that was replaced, and has not heard of that, would answer with an old end of the partition. So a
        record that changes nothing is appended. It has a position only when the partition's replicas confirm it, and it
        comes after each change that was made before.
        """
        async with self._reading:
            try:
                appended = await self._journal.append(self._partition, pack_record(NOTHING_IN_THE_REGISTRY))
                await self._apply_until(appended.position)
            except (JournalUnavailable, PositionTrimmed) as error:
                raise CoordinatorUnavailable(f"the registry can't be read from the journal: {error}") from error
            self._note(self._replay.position)
            return self._replay.snapshot()

    async def _apply_until(self, until: int) -> None:
        if self._replay.position == 0:
            await self._load()
        while self._replay.position < until:
            try:
                records = await self._journal.read(self._partition, self._replay.position, MAX_READ_BYTES)
            except PositionTrimmed:
                before = self._replay.position
                await self._load()
                if self._replay.position <= before:
                    raise
                continue
            if not records:
                raise JournalUnavailable(f"it ends at position {self._replay.position}, before {until}", appended=True)
            for record in records:
                self._replay.apply(record)
            await asyncio.sleep(0)

    async def _load(self) -> None:
        """Load the newest readable snapshot that is ahead."""
        for snapshot in [] if self._snapshots is None else await self._snapshots.newest_first(self._partition):
            if snapshot.position <= self._replay.position:
                return
            try:
                copy = b"".join([page async for page in snapshot.pages()])
            except SnapshotDamaged as error:
                report_damage(self._partition, snapshot, error)
            else:
                self._replay = RegistryReplay(self._partition, snapshot.position, copy)
                return
