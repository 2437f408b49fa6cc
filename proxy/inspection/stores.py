"""The stores that a settings file names, opened for reading."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from proxy.config import Settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import Coordinator, FindRequest, Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.layout import check_layout
from proxy.coordinator.packing import MAX_EXACT
from proxy.diskless.wal.segment import SEGMENT_KEY
from proxy.guard.identity import check_identity
from proxy.journal.opened import opened_journal
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from proxy.storage import ObjectStorage, open_storage

SEGMENTS_PER_STEP = 1_000
Progress = Callable[[int], None]
"""Called with the number of further rows or objects that were looked at."""


class InspectionError(Exception):
    """The request can't be answered; one line with the cause and the next step."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The store and storage that a proxy with these settings would use."""

    settings: Settings
    topics: tuple[DisklessTopic, ...]
    """The registry as it was at the beginning, by name."""
    coordinator: Coordinator
    storage: ObjectStorage

    def named(self, names: list[str]) -> list[DisklessTopic]:
        """Return the topics of these names; all if there are no names.

        Raises InspectionError for a topic that is not diskless.
        """
        by_name = {topic.name: topic for topic in self.topics}
        for name in names:
            if name not in by_name:
                raise InspectionError(
                    f"{name} is not a diskless topic; see `diskless-proxy topics list`: it may be classic, or "
                    f"redis.url may not be the fleet's"
                )
        return [by_name[name] for name in dict.fromkeys(names)] or list(self.topics)


@asynccontextmanager
async def open_stores(settings: Settings, *, of_one_deployment: bool = False) -> AsyncIterator[Stores]:
    """Open the stores. Raises StorageError if storage can't be used, and CoordinatorUnavailable if the store is silent.

    Raises StoreUnfit if the store has a layout that this release does not know and, with `of_one_deployment`, if the
    two don't belong together.
    """
    storage = open_storage(settings.storage, settings.storage_class)
    client = await connect(settings.redis)
    try:
        await check_layout(client, settings.redis)
        async with opened_journal(settings) as journal:
            coordinator = coordinator_on(client, settings, journal)
            registry = await registry_on(client, settings, coordinator).load()
            await coordinator.shards.look()  # for the store's time; nothing is written by it
            await storage.open(try_out=False)
            try:
                if of_one_deployment:
                    await check_identity(client, storage)
                yield Stores(settings, registry.topics, coordinator, storage)
            finally:
                await storage.close()
    finally:
        await client.aclose()


async def open_registry(settings: Settings) -> tuple[DisklessTopic, ...]:
    """Return the registry as it is, by name; storage is not looked at. Raises CoordinatorUnavailable."""
    client = await connect(settings.redis)
    try:
        async with opened_journal(settings) as journal:
            coordinator = coordinator_on(client, settings, journal)
            return (await registry_on(client, settings, coordinator).load()).topics
    finally:
        await client.aclose()


@asynccontextmanager
async def opened(storage: ObjectStorage) -> AsyncIterator[ObjectStorage]:
    """A storage for the time of the context, for reading. Raises StorageError."""
    await storage.open(try_out=False)
    try:
        yield storage
    finally:
        await storage.close()


async def rows_of(coordinator: Coordinator, topic: DisklessTopic, partition: int) -> AsyncIterator[tuple[Row, ...]]:
    """Yield all rows of a log from its start on, a bounded number at a time; none if the log does not exist.

    Rows that come or go meanwhile may or may not be among them. Raises InspectionError if the log's shard is fenced.
    """
    offset = 0
    while True:
        (answer,) = await coordinator.find([FindRequest(topic.topic_id, partition, offset, MAX_EXACT)])
        if answer.error_code == OFFSET_OUT_OF_RANGE and answer.log_start_offset > offset:
            offset = answer.log_start_offset
            continue
        if answer.error_code == KAFKA_STORAGE_ERROR:
            raise InspectionError(
                f"{topic.name}-{partition} can't be read: its shard is fenced; see `diskless-proxy coordinator check`"
            )
        if answer.error_code != NONE or not answer.rows:
            return
        yield answer.rows
        offset = answer.rows[-1].last_offset + 1


async def object_sizes(storage: ObjectStorage, progress: Progress) -> dict[bytes, int]:
    """Bytes of every WAL segment in storage. Holds some 150 bytes of memory for each."""
    sizes: dict[bytes, int] = {}
    async for stored in storage.objects():
        progress(1)
        if named := re.fullmatch(SEGMENT_KEY, stored.key):
            sizes[bytes.fromhex(named[1])] = stored.size_bytes
    return sizes


async def object_size(storage: ObjectStorage, key: str) -> int:
    """Return the size of one object, reading only one byte at a time if it may. Raises ObjectMissing."""
    size, step = 0, 1 << 30
    # The interface has no operation for the size: search for the object's end, in halves from a gigabyte on.
    while step:
        if await storage.fetch(key, size + step - 1, size + step):
            size += step
        step >>= 1
    return size
