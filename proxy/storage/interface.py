"""What object storage promises (KIP-1163's StorageBackend): immutable objects, visible only when whole and durable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class StorageError(Exception):
    """The operation failed, or nobody knows whether it took effect."""


class ObjectMissing(StorageError):
    """No object of that key."""


class ObjectRefused(StorageError):
    """The storage has the object and gives it to nobody, or not to us: archived, encrypted with a key that is away."""


class ObjectsLeft(StorageError):
    """Some of the objects that were to be deleted are still there; the others are gone."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        key, reason = next(iter(reasons.items()))
        super().__init__(f"{len(reasons)} objects were not deleted, first {key}: {reason}")
        self.reasons = reasons
        """Why, by key."""


class StoredObject(NamedTuple):
    """What a listing tells of an object."""

    key: str
    size_bytes: int
    modified_ms: int
    """Milliseconds since 1970, by the storage's clock."""


class ObjectStorage(Protocol):
    """Keys are relative to the prefix of `storage.url`. Every method may raise StorageError."""

    async def open(self, *, try_out: bool = True) -> None:
        """Connect, and try that the bucket or directory can be used; the error names cause and remedy.

        Without `try_out` nothing is written: for whoever only reads.
        """

    async def close(self) -> None:
        """Let go of connections."""

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """Make the object durable, once: fails where the key is taken or other than `length` bytes came.

        `data` is left alone by the caller until this returns.
        """

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        """Bytes `start` to `end` (exclusive; the object's end where None or beyond).

        Raises ObjectMissing, and ObjectRefused where no other try will do.

        A bytearray is the caller's own, who may write into it; bytes cost a copy then.
        """

    def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """All objects under the prefix; one that comes or goes meanwhile may be in it or not.

        With `folder`, a key's beginning that ends with a slash, only those in it and below it.
        """

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are missing are no error.

        Raises ObjectsLeft where all were tried and some refused. After any other StorageError each may be there.
        """
