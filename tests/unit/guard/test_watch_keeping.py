"""The state that the watch of the store keeps in object storage, whatever the storage answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from proxy import config
from proxy.coordinator.interface_registry import RegistryChange
from proxy.coordinator.packing_state import ShardState
from proxy.guard.remembered import read_remembered
from proxy.guard.watch import StoreWatch
from proxy.storage.interface import ObjectMissing


class Objects:
    """Object storage in memory whose first listings raise the errors in `faults`."""

    def __init__(self, *faults: Exception) -> None:
        self.stored: dict[str, bytes] = {}
        self.kept = asyncio.Event()
        self.faults = list(faults)

    async def objects(self, folder: str) -> AsyncIterator[Any]:
        if self.faults:
            raise self.faults.pop(0)
        for key in list(self.stored):
            if key.startswith(folder):
                yield SimpleNamespace(key=key)

    async def fetch(self, key: str) -> bytes:
        if key not in self.stored:
            raise ObjectMissing(key)
        return self.stored[key]

    async def upload(self, key: str, data: bytes, length: int) -> None:
        self.stored[key] = data
        self.kept.set()

    async def delete(self, keys: list[str]) -> None:
        pass


async def test_an_unusual_error_of_the_storage_ends_no_watch():
    states = {0: ShardState(bytes(8), 5)}
    coordinator: Any = SimpleNamespace(fence=SimpleNamespace(states=lambda: states))
    topics: Any = SimpleNamespace(change=RegistryChange(3))
    storage: Any = Objects(RuntimeError("Credentials were refreshed, but are still expired."))
    settings = config.Redis(url="redis://127.0.0.1:1", check_interval_ms=60_000, remember_interval_ms=10)
    client: Any = None
    watch = StoreWatch(settings, client, coordinator, storage, topics, lambda: True)
    with structlog.testing.capture_logs() as logged:
        watching = asyncio.create_task(watch.keep_watching())
        async with asyncio.timeout(10):
            await asyncio.wait({asyncio.create_task(storage.kept.wait()), watching}, return_when="FIRST_COMPLETED")
    assert not watching.done()
    assert (await read_remembered(storage, "")).shards == states
    assert [(entry["event"], entry["reason"].split(":")[0]) for entry in logged] == [("keeping_broken", "RuntimeError")]
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
