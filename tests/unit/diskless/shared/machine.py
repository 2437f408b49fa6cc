"""A storage process and its workers, all in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from proxy.diskless.shared.blocks import SharedBlocks, SharedCaches
from proxy.diskless.shared.link import StorageLink
from proxy.diskless.shared.reads_client import SharedReads
from proxy.diskless.shared.server import StorageServer
from proxy.diskless.shared.wal_client import RemoteWal
from tests.unit.diskless.wal.buffer_doubles import Coordinator, Storage, make


class Worker:
    """A worker, as far as the storage process is concerned."""

    def __init__(self, address: str, heard: Callable[[bytes, int, int, int], None]) -> None:
        self.link = StorageLink(address)
        self.wal = RemoteWal(self.link, heard)
        reads = SharedReads(self.link)
        self.reads, self.cold_reads = reads.reader(cold=False), reads.reader(cold=True)
        self.keeping = asyncio.create_task(self.link.keep())

    async def end(self) -> None:
        self.keeping.cancel()
        with suppress(asyncio.CancelledError):
            await self.keeping


class Machine:
    def __init__(self, name: str, storage: Any) -> None:
        self.address = f"\0{name}"
        self.storage, self.coordinator = storage or Storage(), Coordinator()
        self.heard: list[tuple[bytes, int, int, int]] = []
        self.workers: list[Worker] = []

    async def start(self, *, capacity_bytes: int = 16 << 20, **limits: float) -> None:
        self.caches = SharedCaches(*(SharedBlocks(self.storage, capacity_bytes=capacity_bytes) for _ in range(2)))
        self.blocks = self.caches.tail
        self.wal = await make(self.storage, self.coordinator, **limits)
        self.server = StorageServer(self.address, self.wal, self.caches)
        self.server.listen()

    async def worker(self) -> Worker:
        worker = Worker(self.address, lambda *bounds: self.heard.append(bounds))
        self.workers.append(worker)
        await worker.link.wait_open()
        return worker

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not happened():  # noqa: ASYNC110 - the kernel's sockets are between both sides
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        for worker in self.workers:
            await worker.end()
        self.server.close()
        await self.wal.close()
        for blocks in self.caches:
            await blocks.close()


@asynccontextmanager
async def machine(name: str, storage: Any = None, **limits: float) -> AsyncIterator[Machine]:
    made = Machine(name, storage)
    await made.start(**limits)
    try:
        yield made
    finally:
        await made.close()
