"""Object storage with its errors and GETs counted, whichever kind it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from proxy.storage.interface import Buffer, ObjectMissing, ObjectStorage, StorageError, StoredObject
from proxy.telemetry.stats import Stats


class CountedStorage:
    """`ObjectStorage` that counts what another one does."""

    def __init__(self, storage: ObjectStorage, stats: Stats) -> None:
        self._storage = storage
        self._stats = stats

    async def open(self, *, try_out: bool = True) -> None:
        """Open the storage. This is not counted: it is retried until it works, before there is any client."""
        await self._storage.open(try_out=try_out)

    async def close(self) -> None:
        """Close the storage."""
        await self._storage.close()

    async def upload(self, key: str, data: Buffer, length: int) -> None:
        """Upload an object, and count it."""
        with self._counting("put"):
            await self._storage.upload(key, data, length)

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        """Fetch bytes, and count it; the time is observed if it succeeds."""
        began_s = perf_counter()
        with self._counting("get"):
            data = await self._storage.fetch(key, start, end)
        self._stats.storage_get_seconds.observe(perf_counter() - began_s)
        return data

    async def objects(self, folder: str = "") -> AsyncIterator[StoredObject]:
        """List objects, and count it."""
        with self._counting("list"):
            async for found in self._storage.objects(folder):
                yield found

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, and count it."""
        with self._counting("delete"):
            await self._storage.delete(keys)

    @contextmanager
    def _counting(self, operation: str) -> Iterator[None]:
        try:
            yield
        except ObjectMissing:
            raise
        except StorageError:
            self._stats.storage_errors[operation] += 1
            raise
