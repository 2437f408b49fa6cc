"""Snapshots in memory, which a test takes in steps and loads again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from proxy.coordinator.copying import Copied, copy_registry, copy_shard
from proxy.coordinator.interface_snapshots import SnapshotDamaged
from proxy.coordinator.view import View


@dataclass
class MemorySnapshot:
    position: int
    state: bytes
    kept: list[bytes]
    damaged_at: int | None = None
    """Number of pages after which a part is damaged."""

    async def pages(self) -> AsyncIterator[bytes]:
        for number, page in enumerate(self.kept):
            if number == self.damaged_at:
                raise SnapshotDamaged("planted")
            yield page


@dataclass
class MemorySnapshots:
    """Snapshots by partition, in the order in which they were taken."""

    taken: dict[int, list[MemorySnapshot]] = field(default_factory=lambda: defaultdict(list))

    async def newest_first(self, partition: int) -> Sequence[MemorySnapshot]:
        return sorted(self.taken[partition], key=lambda snapshot: -snapshot.position)

    async def take(self, view: View, partition: int, step_bytes: int = 1) -> Copied | None:
        pages: list[bytes] = []

        async def keep(page: bytes) -> None:
            pages.append(page)

        if partition == view.registry:
            copied = await copy_registry(view, keep)
        else:
            copied = await copy_shard(view, partition, step_bytes, keep)
        if copied is not None:
            self.taken[partition].append(MemorySnapshot(copied.position, copied.state, pages))
        return copied
