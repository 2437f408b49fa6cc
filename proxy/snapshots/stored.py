"""Snapshots in object storage, below `coordinator/snapshots/<journal>/<partition>/`.

Each snapshot has a folder of its own, whose name begins with the time when its copy began. So two proxies that take
snapshots at once write nothing that the other one reads.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

import structlog

from proxy.coordinator.clock import wall_clock_ms
from proxy.coordinator.interface import CoordinatorUnavailable
from proxy.coordinator.interface_journal import Journal
from proxy.coordinator.interface_snapshots import Snapshot, SnapshotDamaged
from proxy.snapshots.manifest import (
    MAX_MANIFEST_BYTES,
    Kept,
    Manifest,
    Part,
    checksum,
    pack_manifest,
    pack_page,
    unpack_manifest,
    unpack_pages,
)
from proxy.storage.interface import ObjectStorage, StorageError, StoredObject

log = structlog.get_logger()

FOLDER = "coordinator/snapshots/"
PART_BYTES = 4 << 20
"""Size from which on the pages so far are a part."""
ABANDONED_MS = 3_600_000
"""Age from which on parts without a manifest are deleted: their proxy has ended."""
_MANIFEST = "manifest.json"


class _StoredSnapshot:
    """A snapshot to load."""

    def __init__(self, storage: ObjectStorage, manifest: Manifest) -> None:
        self._storage = storage
        self._manifest = manifest
        self.position = manifest.position
        self.state = bytes.fromhex(manifest.state)

    async def pages(self) -> AsyncIterator[bytes]:
        """Yield the pages. Raises SnapshotDamaged in between."""
        for part in self._manifest.parts:
            try:
                stored = bytes(await self._storage.fetch(part.key))
            except StorageError as error:
                raise SnapshotDamaged(f"{part.key} can't be read: {error}") from error
            for page in unpack_pages(part, stored):
                yield page


class StoredSnapshots:
    """The snapshots of one journal. Methods raise StorageError, except `newest_first`."""

    def __init__(self, storage: ObjectStorage, journal: Journal) -> None:
        self._storage = storage
        self._journal = journal

    def folder(self, partition: int) -> str:
        """Return the folder of a partition. Raises JournalUnavailable before the journal is open."""
        return f"{FOLDER}{self._journal.identity.hex()}/{partition}/"

    async def newest_first(self, partition: int) -> Sequence[Snapshot]:
        """Return the snapshots that can be loaded. Raises CoordinatorUnavailable."""
        try:
            return [_StoredSnapshot(self._storage, kept.manifest) for kept in await self.kept(partition)]
        except StorageError as error:
            raise CoordinatorUnavailable(f"the snapshots can't be listed: {error}") from error

    async def kept(self, partition: int) -> list[Kept]:
        """Return the complete snapshots, the newest first. Those that can't be read are reported and left out."""
        found = []
        objects = await self._objects(partition)
        sizes = {stored.key: stored.size_bytes for stored in objects}
        for stored in objects:
            if not stored.key.endswith(f"/{_MANIFEST}"):
                continue
            try:
                manifest = unpack_manifest(await self._fetch(stored.key), partition)
                for part in manifest.parts:
                    if sizes.get(part.key) != part.size_bytes:
                        raise SnapshotDamaged(f"{part.key} is missing, or has another size")
            except SnapshotDamaged as error:
                log.error("snapshot_damaged", snapshot=stored.key, reason=str(error), effect="it is not used")
                continue
            found.append(Kept(stored.key, manifest, stored.modified_ms))
        return sorted(found, key=lambda kept: -kept.manifest.position)

    async def delete_others(self, partition: int, kept: Sequence[Kept]) -> None:
        """Delete older snapshots than these, and what is left of copies whose proxies have ended."""
        oldest = min(_folder_of(one.key) for one in kept)
        by_folder: dict[str, list[StoredObject]] = defaultdict(list)
        for stored in await self._objects(partition):
            by_folder[_folder_of(stored.key)].append(stored)
        for folder, objects in by_folder.items():
            manifests = [stored.key for stored in objects if stored.key.endswith(f"/{_MANIFEST}")]
            newest_ms = max(stored.modified_ms for stored in objects)
            if manifests and folder < oldest:
                # First: a snapshot that has a manifest has all parts.
                await self._storage.delete(manifests)
            elif manifests or newest_ms > wall_clock_ms() - ABANDONED_MS:
                continue
            await self._storage.delete([stored.key for stored in objects if stored.key not in manifests])

    async def _fetch(self, key: str) -> bytes:
        return bytes(await self._storage.fetch(key, 0, MAX_MANIFEST_BYTES))

    async def _objects(self, partition: int) -> list[StoredObject]:
        return [stored async for stored in self._storage.objects(self.folder(partition))]

    def write(self, partition: int) -> SnapshotWriter:
        """Return the writer of a new snapshot."""
        return SnapshotWriter(self._storage, self.folder(partition), partition)


class SnapshotWriter:
    """Writes the pages of one snapshot to parts, and the manifest at the end."""

    def __init__(self, storage: ObjectStorage, folder: str, partition: int) -> None:
        self._storage = storage
        self._folder = f"{folder}{wall_clock_ms():020d}-{os.urandom(4).hex()}/"
        self._partition = partition
        self._pages: list[bytes] = []
        self._bytes = 0
        self._parts: list[Part] = []

    async def keep(self, page: bytes) -> None:
        """Add a page. Raises StorageError."""
        self._pages.append(pack_page(page))
        self._bytes += len(self._pages[-1])
        if self._bytes >= PART_BYTES:
            await self._end_part()

    async def _end_part(self) -> None:
        data = b"".join(self._pages)
        key = f"{self._folder}{len(self._parts):06d}"
        await self._storage.upload(key, data, len(data))
        self._parts.append(Part(key=key, size_bytes=len(data), sha256=checksum(data)))
        self._pages, self._bytes = [], 0

    async def complete(self, position: int, state: bytes) -> None:
        """Write the manifest: from now on the snapshot exists. Raises StorageError."""
        if self._pages:
            await self._end_part()
        manifest = Manifest(partition=self._partition, position=position, state=state.hex(), parts=tuple(self._parts))
        data = pack_manifest(manifest)
        await self._storage.upload(f"{self._folder}{_MANIFEST}", data, len(data))


async def has_contents(storage: ObjectStorage, journal: str, partition: int) -> bool:
    """Return whether a snapshot of a partition has anything in it. Raises StorageError.

    `journal`: identity of the journal, in hex digits.
    """
    async for stored in storage.objects(f"{FOLDER}{journal}/{partition}/"):
        if not stored.key.endswith(f"/{_MANIFEST}"):
            return True
    return False


async def drop_snapshots(storage: ObjectStorage, journal: str) -> None:
    """Delete all snapshots of a journal that nobody uses any more. Raises StorageError."""
    await storage.delete([stored.key async for stored in storage.objects(f"{FOLDER}{journal}/")])


def _folder_of(key: str) -> str:
    return key.rpartition("/")[0]
