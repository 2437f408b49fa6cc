"""Check that topics are complete, from the state in the coordinator and in the brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

from proxy.config import load_settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import connect
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import shard_prefix
from proxy.demo.stack import Stack
from proxy.journal.opened import opened_journal
from proxy.wire.header import request_header
from proxy.wire.metadata import MetadataTopic, build_metadata_request, metadata_topics

METADATA, METADATA_VERSION = 3, 12
SETTLED_SECONDS = 90.0


class Books:
    """The state of topics in the coordinator and in the brokers, read directly."""

    def __init__(
        self, stack: Stack, client: Store, coordinator: RedisCoordinator, registry: RedisTopicRegistry, shards: int
    ) -> None:
        self._stack = stack
        self._client = client
        self._coordinator = coordinator
        self._registry = registry
        self._shards = shards

    @classmethod
    @asynccontextmanager
    async def of(cls, stack: Stack) -> AsyncIterator[Books]:
        """Open the books of a stack during the context."""
        settings = load_settings(stack.config_path(stack.options.racks[0]))
        client = await connect(settings.redis)
        try:
            async with opened_journal(settings) as journal:
                coordinator = coordinator_on(client, settings, journal)
                registry = registry_on(client, settings, coordinator)
                yield cls(stack, client, coordinator, registry, settings.redis.shards)
        finally:
            await client.aclose()

    async def entries(self) -> dict[str, DisklessTopic]:
        """Return the registry's entries, by name."""
        return {topic.name: topic for topic in (await self._registry.load()).topics}

    async def shadows(self, names: Iterable[str]) -> dict[str, MetadataTopic]:
        """Return the placeholder topics that all brokers know. Raises AssertionError if the brokers do not agree
        yet."""
        known = [await self._known_to(node, sorted(names)) for node in self._stack.kafka.brokers]
        assert all(one.keys() == known[0].keys() for one in known), "brokers disagree"
        return known[0]

    async def _known_to(self, node: int, names: list[str]) -> dict[str, MetadataTopic]:
        body = build_metadata_request(METADATA_VERSION, names)
        answer = await exchange(self._stack.kafka.address(node), METADATA, METADATA_VERSION, body)
        topics = metadata_topics(answer[5:], METADATA_VERSION)  # the header: correlation ID, no tagged fields
        return {str(topic.name): topic for topic in topics if not topic.error_code}

    async def half_made(self, names: Iterable[str]) -> str:
        """Return what is still incomplete about these topics; empty if all are complete."""
        entries = await self.entries()
        try:
            shadows = await self.shadows(names)
        except AssertionError as error:
            return str(error)
        found = []
        for name in names:
            entry, shadow = entries.get(name), shadows.get(name)
            if entry is None and shadow is None:
                continue
            if entry is None or shadow is None or entry.state != "live":
                found.append(f"{name}: {entry} with shadow {shadow}")
            elif (entry.topic_id, entry.partitions) != (shadow.topic_id, shadow.partition_count):
                found.append(f"{name}: {entry} is another topic than its shadow {shadow}")
            elif None in await self._coordinator.describe(entry.topic_id, range(entry.partitions)):
                found.append(f"{name}: {entry} has no log of some partition")
        ids = {entry.topic_id for entry in entries.values()}
        for shard in range(self._shards):
            found += [
                f"a log is of topic ID {key[:16].hex()}, which no topic has"
                for key in cast("list[bytes]", await self._client.hkeys(f"{shard_prefix(shard)}logs"))
                if key[:16] not in ids
            ]
        return "; ".join(found)

    async def settled(self, names: Iterable[str]) -> None:
        """Wait until nothing is half made."""
        deadline = time.monotonic() + SETTLED_SECONDS
        while found := await self.half_made(names):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.5)


async def exchange(address: str, api_key: int, api_version: int, body: bytes) -> memoryview:
    """Send one request and return its answer with the header."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        frame = request_header(api_key, api_version, 1, "test") + body
        writer.write(len(frame).to_bytes(4, "big") + frame)
        return memoryview(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
    finally:
        writer.close()
