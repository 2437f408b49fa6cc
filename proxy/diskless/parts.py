"""Parts of objects, as the caches of records read them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.storage.interface import Buffer, ObjectStorage, StorageError


class Part(NamedTuple):
    """A part of an object; it is shorter if the object ends before."""

    data: Buffer
    """A bytearray or memoryview may be written by the caller; bytes cost a copy then."""
    was_read: bool
    """Whether object storage was read for it, rather than memory that several processes share."""


class NotRead(StorageError):
    """Object storage was not asked."""


class PartReader(Protocol):
    """Reads parts of objects."""

    async def read(self, key: str, start: int, end: int) -> Part:
        """Return the bytes from `start` to `end`, or to the object's end if that is before.

        Raises ObjectMissing, ObjectRefused if no retry can succeed, NotRead, and StorageError.
        """


class DirectReads:
    """Reads every part from object storage."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    async def read(self, key: str, start: int, end: int) -> Part:
        """See `PartReader`."""
        return Part(await self._storage.fetch(key, start, end), was_read=True)
