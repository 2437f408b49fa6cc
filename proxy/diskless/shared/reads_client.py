"""Object storage as a worker's caches read it: by way of the storage process, in memory that all workers share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from proxy.diskless.parts import NotRead, Part, PartReader
from proxy.diskless.shared.link import StorageLink
from proxy.diskless.shared.messages import ArenaGone, Fetch, Fetched, NotFetched
from proxy.process.shared_memory import mapped
from proxy.storage.interface import ObjectMissing, ObjectRefused, StorageError

_ERRORS = {one.__name__: one for one in (ObjectMissing, ObjectRefused)}


class _Reader(NamedTuple):
    reads: SharedReads
    cold: bool

    async def read(self, key: str, start: int, end: int) -> Part:
        """See `PartReader`."""
        return await self.reads.read(key, start, end, cold=self.cold)


class SharedReads:
    """Fetches parts of objects. Raises StorageError if the storage process does, or if it has ended."""

    def __init__(self, link: StorageLink) -> None:
        self._link = link
        self._numbers = 0
        self._waiting: dict[int, tuple[asyncio.Future[Part], tuple[str, int, int]]] = {}
        self._arenas: dict[int, memoryview] = {}
        self._parts: defaultdict[int, set[tuple[str, int, int]]] = defaultdict(set)
        """Parts that were found in each arena."""
        self.on_gone: list[Callable[[str, int, int], None]] = []
        """They are called with each part whose arena is gone: a cache that keeps a part keeps its whole arena."""
        link.take(Fetched, self._fetched)
        link.take(NotFetched, lambda message, _: self._not_fetched(message))
        link.take(ArenaGone, lambda message, _: self._arena_gone(message.arena))
        link.on_lost.append(self._lost)

    def reader(self, *, cold: bool) -> PartReader:
        """Return the reader of one of the two caches."""
        return _Reader(self, cold)

    async def read(self, key: str, start: int, end: int, *, cold: bool) -> Part:
        """See `PartReader`. The bytes may be written: all workers write the same there."""
        if not self._link.is_open:
            raise NotRead("the storage process does not run; it is started again")
        self._numbers += 1
        number = self._numbers
        found: asyncio.Future[Part] = asyncio.get_running_loop().create_future()
        self._waiting[number] = found, (key, start, end)
        self._link.send(Fetch(number, key, start, end, cold))
        try:
            return await found
        finally:
            self._waiting.pop(number, None)

    def _fetched(self, message: Fetched, descriptors: list[int]) -> None:
        found, part = self._waiting.pop(message.number, (None, None))
        try:
            if descriptors:
                self._arenas[message.arena] = mapped(descriptors[0], message.arena_bytes)
            arena = self._arenas[message.arena]
        except (OSError, KeyError) as error:
            if found is not None and not found.done():
                found.set_exception(StorageError(f"shared memory can't be mapped: {error}"))
            return
        if found is not None and part is not None and not found.done():
            self._parts[message.arena].add(part)
            found.set_result(Part(arena[message.offset : message.offset + message.length], message.was_read))

    def _not_fetched(self, message: NotFetched) -> None:
        found, _ = self._waiting.pop(message.number, (None, None))
        if found is not None and not found.done():
            found.set_exception(_ERRORS.get(message.error, StorageError)(message.text))

    def _arena_gone(self, number: int) -> None:
        self._arenas.pop(number, None)
        for part in self._parts.pop(number, ()):
            for gone in self.on_gone:
                gone(*part)

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for found, _ in waiting.values():
            if not found.done():
                found.set_exception(NotRead("the storage process has ended; it is started again"))
        for number in list(self._arenas):
            self._arena_gone(number)
