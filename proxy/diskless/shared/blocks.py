"""The cache of the storage process: parts of objects in shared memory, which workers read from there.

Memory is taken in arenas, which are filled from their beginning. The least recently used arena goes as a whole. Own
segments stay as they were uploaded until a worker wants one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from proxy.diskless.parts import Part
from proxy.diskless.wal.segment import segment_key
from proxy.process.shared_memory import PIECE_BYTES, SharedMemory
from proxy.storage.interface import Buffer, ObjectStorage, StorageError

_NUMBERS = itertools.count(1)
"""Numbers of the arenas of this process."""

_Part = tuple[str, int, int]
"""Key, start and end."""


class Arena:
    """Memory with parts of objects."""

    __slots__ = ("end", "memory", "number", "parts")

    def __init__(self, size_bytes: int) -> None:
        self.number = next(_NUMBERS)
        self.memory = SharedMemory(size_bytes)
        self.end = 0
        """Place of the next part."""
        self.parts: list[_Part] = []


class Place(NamedTuple):
    """The place of a part in shared memory."""

    arena: Arena
    offset: int
    length: int
    was_read: bool
    """Whether object storage was read for this request of it."""


class SharedBlocks:
    """Reads each part once, however many workers want it, and keeps at most `capacity_bytes` of them.

    `gone` is called with an arena that is evicted.
    """

    def __init__(
        self, storage: ObjectStorage, *, capacity_bytes: int, gone: Callable[[Arena], None] = lambda arena: None
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.gone = gone
        self._storage = storage
        self._held: OrderedDict[int | str, Arena | bytearray] = OrderedDict()
        """Arenas by number, and by key own segments that no worker has wanted yet; the least recently used first."""
        self._open: Arena | None = None
        self._places: dict[_Part, Place] = {}
        self._loading: dict[_Part, asyncio.Task[Place]] = {}
        self.used_bytes = 0

    def resize(self, capacity_bytes: int) -> None:
        """Keep at most this much from now on."""
        self.capacity_bytes = capacity_bytes
        self._make_room(0)

    def insert(self, segment: bytes, data: bytearray) -> None:
        """Keep a segment of our own that has just been uploaded. `data` is the cache's from now on."""
        self._make_room(len(data))
        self._held[segment_key(segment)] = data
        self.used_bytes += len(data)

    async def fetch(self, key: str, start: int, end: int) -> Place:
        """Return where a part of an object lies; it is shorter if the object ends before. Raises StorageError.

        The place counts until the next pause of the caller, as the arena may be evicted then.
        """
        part = key, start, end
        was_read = False
        while True:
            place = self._known(part)
            if place is not None:
                return place._replace(was_read=was_read)
            task = self._loading.get(part)
            if task is None:
                was_read = True
                task = self._loading[part] = asyncio.get_running_loop().create_task(self._load(part))
                task.add_done_callback(lambda _: self._loading.pop(part, None))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled():
                    raise StorageError("the storage process ends") from None
                raise

    async def read(self, key: str, start: int, end: int) -> Part:
        """See `PartReader`: for the storage process itself."""
        place = await self.fetch(key, start, end)
        return Part(place.arena.memory.view[place.offset : place.offset + place.length], place.was_read)

    async def close(self) -> None:
        """End the reads under way, and let go of all memory."""
        loading = list(self._loading.values())
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        self.resize(0)

    def _known(self, part: _Part) -> Place | None:
        key, start, end = part
        place = self._places.get(part)
        if place is None:
            own = self._held.get(key)
            if not isinstance(own, bytearray):
                return None
            self._held.move_to_end(key)
            place = self._keep(part, memoryview(own)[start:end])
            if not start and end >= len(own) and key in self._held:  # every worker now reads it in the arena
                del self._held[key]
                self.used_bytes -= len(own)
        self._held.move_to_end(place.arena.number)
        return place

    async def _load(self, part: _Part) -> Place:
        return self._keep(part, await self._storage.fetch(*part))

    def _keep(self, part: _Part, data: Buffer) -> Place:
        arena = self._open
        if arena is None or arena.end + len(data) > arena.memory.size_bytes:
            size_bytes = max(PIECE_BYTES, len(data))
            self._make_room(size_bytes)
            try:
                arena = Arena(size_bytes)
            except OSError as error:
                raise StorageError(f"no memory to share: {error}") from error
            self._held[arena.number] = self._open = arena
            self.used_bytes += size_bytes
        place = Place(arena, arena.end, len(data), was_read=False)
        arena.memory.view[arena.end : arena.end + len(data)] = data
        arena.end += len(data)
        arena.parts.append(part)
        self._places[part] = place
        return place

    def _make_room(self, size_bytes: int) -> None:
        """Evict what was used least recently until `size_bytes` more fit, as far as there is anything."""
        while self.used_bytes + size_bytes > self.capacity_bytes and self._held:
            _, held = self._held.popitem(last=False)
            if isinstance(held, Arena):
                self._let_go(held)
            else:
                self.used_bytes -= len(held)

    def _let_go(self, arena: Arena) -> None:
        if arena is self._open:
            self._open = None
        for part in arena.parts:
            if self._places[part].arena is arena:
                del self._places[part]
        self.used_bytes -= arena.memory.size_bytes
        self.gone(arena)
        arena.memory.close()


class SharedCaches(NamedTuple):
    """The caches of the storage process."""

    tail: SharedBlocks
    cold: SharedBlocks
    """For old records, so that they do not push newer records out."""
