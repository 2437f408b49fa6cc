"""Errors and times of object storage are counted, and the results stay unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.config import Storage
from proxy.storage.counted import CountedStorage
from proxy.storage.file import FileStorage
from proxy.storage.interface import ObjectMissing, StorageError, StoredObject
from proxy.telemetry.stats import Stats


class Broken(FileStorage):
    """Fails with everything but opening."""

    async def upload(self, key, data, length):
        raise StorageError("no")

    async def fetch(self, key, start=0, end=None):
        raise StorageError("no")

    async def objects(self, folder="") -> AsyncIterator[StoredObject]:
        yield StoredObject("one", 1, 0)
        raise StorageError("no")

    async def delete(self, keys):
        raise StorageError("no")


async def test_a_successful_operation_is_timed_and_is_not_an_error(tmp_path: Path) -> None:
    stats = Stats()
    storage = CountedStorage(FileStorage(Storage(url=f"file://{tmp_path}")), stats)
    await storage.open()
    await storage.upload("key", b"data", 4)
    assert bytes(await storage.fetch("key", 1, 3)) == b"at"
    assert [found.key async for found in storage.objects()] == ["key"]
    await storage.delete(["key"])
    with pytest.raises(ObjectMissing):
        await storage.fetch("key")
    await storage.close()
    assert stats.storage_get_seconds.count == 1
    assert stats.storage_errors == {"put": 0, "get": 0, "list": 0, "delete": 0}


async def test_each_operation_that_fails_is_counted(tmp_path: Path) -> None:
    stats = Stats()
    storage = CountedStorage(Broken(Storage(url=f"file://{tmp_path}")), stats)
    with pytest.raises(StorageError):
        await storage.upload("key", b"data", 4)
    with pytest.raises(StorageError):
        await storage.fetch("key")
    with pytest.raises(StorageError):
        async for _ in storage.objects():
            pass
    with pytest.raises(StorageError):
        await storage.delete(["key"])
    assert stats.storage_errors == {"put": 1, "get": 1, "list": 1, "delete": 1}
    assert stats.storage_get_seconds.count == 0
