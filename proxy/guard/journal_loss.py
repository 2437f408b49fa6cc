"""Brings a store that was lost together with its journal back to its newest snapshots, and accepts the rest as lost.

Nobody knows which offsets were given after a snapshot. So each log continues a gap further on, as after an accepted
loss of a store without a journal (`unfence.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from proxy.config import Settings
from proxy.coordinator.adoption import Order, give_to_store, parts_of
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.interface_journal import Appended, JournalRecord, JournalUnavailable
from proxy.guard.unfence import logs_by_shard
from proxy.snapshots.stored import StoredSnapshots
from proxy.storage import ObjectStorage


class Restored(NamedTuple):
    """A part of the store, as it was before a gap."""

    position: int
    """Number of the journal's records that it has applied."""
    from_snapshot: bool
    """True if a snapshot was loaded; False if the store had more."""


class LostJournal:
    """The journal of a deployment, which does not exist any more; only its snapshots do."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity

    async def append(self, partition: int, value: bytes) -> Appended:
        """Raise JournalUnavailable."""
        self._gone()

    async def read(self, partition: int, from_position: int, max_bytes: int) -> Sequence[JournalRecord]:
        """Raise JournalUnavailable."""
        self._gone()

    async def end(self, partition: int) -> int:
        """Raise JournalUnavailable."""
        self._gone()

    async def start(self, partition: int) -> int:
        """Raise JournalUnavailable."""
        self._gone()

    async def trim(self, partition: int, before: int) -> int:
        """Raise JournalUnavailable."""
        self._gone()

    def _gone(self) -> NoReturn:
        raise JournalUnavailable("the journal is lost", appended=False)


async def restore_snapshots(
    client: Store, storage: ObjectStorage, settings: Settings, journal: bytes, gap: int
) -> list[Restored]:
    """Load the newest snapshot of each part that is older, and let the store be the order of its writes.

    `journal`: identity of the lost journal. `gap`: offsets that may have been given in a shard after what is left of
    it. Returns the shards, and the registry last. It can be repeated. Raises CoordinatorUnavailable and StorageError.
    """
    lost = LostJournal(journal)
    view = coordinator_on(client, settings, lost, StoredSnapshots(storage, lost)).view
    assert view is not None
    restored = []
    shards = settings.redis.shards
    for partition, part in enumerate(await parts_of(client, shards)):
        position = part.position
        if part.order is not Order.STORE:
            position = await view.load(partition, part.position)
            await give_to_store(client, shards, partition)
        restored.append(Restored(position, position > part.position))
    guarded = coordinator_on(client, settings)
    logs = await logs_by_shard(registry_on(client, settings, guarded), shards)
    for shard in range(shards):
        await guarded.shards.unfence(shard, gap, logs.get(shard, ()))
    return restored
