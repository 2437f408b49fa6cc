"""The interface of object storage (KIP-1163's StorageBackend): immutable objects, visible only when whole and
durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class StorageError(Exception):
    """The operation failed, or its outcome is unknown."""


class ObjectMissing(StorageError):
    """No object of that key."""


class ObjectRefused(StorageError):
    """The storage has the object but does not return it, to anybody or to us: archived, or encrypted with a missing
    key."""


class ObjectsLeft(StorageError):
    """Some of the objects that were to be deleted are still there; the others are gone."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        key, reason = next(iter(reasons.items()))
        super().__init__(f"{len(reasons)} objects were not deleted, first {key}: {reason}")
        self.reasons = reasons
        """Why, by key."""


class StoredObject(NamedTuple):
    """An object in a listing."""

    key: str
    size_bytes: int
    modified_ms: int
    """Milliseconds since 1970, by the storage's clock."""


class ObjectStorage(Protocol):
    """Keys are relative to the prefix of `storage.url`. Every method may raise StorageError."""

    async def open(self, *, try_out: bool = True) -> None:
        """Connect, and test that the bucket or directory can be used; the error names cause and remedy.

        Without `try_out` nothing is written: use that for callers that only read.
        """

    async def close(self) -> None:
        """Let go of connections."""

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """Make the object durable, once. Fails if the key exists, or if other than `length` bytes came.

        The caller must not change `data` until this returns.
        """

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        """Return the bytes from `start` to `end` (exclusive; the object's end if None or beyond it).

        Raises ObjectMissing, and ObjectRefused if no retry can succeed.

        A bytearray belongs to the caller, which may write into it; bytes cost a copy then.
        """

    def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """All objects under the prefix; one that comes or goes meanwhile may be in it or not.

        With `folder`, a key's beginning that ends with a slash, only those in it and below it.
        """

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing objects are no error.

        Raises ObjectsLeft if all were tried and some could not be removed. After any other StorageError each object may
        still exist.
        """
