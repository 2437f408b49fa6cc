"""The topic registry and the fleet store in memory, written from the interface and as plainly as possible."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

from proxy.coordinator.interface_fleet import Beaten, ProxyRecord, SeenProxy
from proxy.coordinator.interface_registry import (
    NO_CHANGE,
    NO_MARK,
    DisklessTopic,
    RegistryChange,
    RegistryChanged,
    RegistrySnapshot,
    TopicNotReserved,
    TopicReserved,
)
from tests.coordinator_model import Clock, wall_clock_ms


class ModelTopicRegistry:
    def __init__(self) -> None:
        self.marks = [NO_MARK]
        """Changes by version."""
        self.why_fenced = ""
        self.cluster_id = ""
        self.topics: dict[str, DisklessTopic] = {}
        self._listeners: list[asyncio.Queue[RegistryChange]] = []

    @property
    def version(self) -> int:
        return len(self.marks) - 1

    def expect_identity(self, identity: str) -> None:
        pass

    async def load(self, known: RegistryChange = NO_CHANGE) -> RegistrySnapshot:
        if known.version > self.version or (known.version > 0 and self.marks[known.version] != known.mark):
            self.why_fenced = "changes are lost"
        topics = tuple(self.topics[name] for name in sorted(self.topics))
        return RegistrySnapshot(self.version, topics, self.marks[-1], self.why_fenced)

    async def newest_change(self) -> RegistryChange:
        return RegistryChange(self.version, self.marks[-1])

    async def reserve(self, name: str, partitions: int, configs: dict[str, str], owner: str) -> int:
        if name in self.topics:
            raise TopicReserved(name)
        return self._put(DisklessTopic(name, bytes(16), partitions, "reserved", dict(configs), owner))

    async def activate(self, name: str, topic_id: bytes, partitions: int) -> int:
        topic = self.topics.get(name)
        if topic is None or topic.state == "deleting" or (topic.state == "live" and topic.topic_id != topic_id):
            raise TopicNotReserved(name)
        if topic.state == "live":
            partitions = max(partitions, topic.partitions)
        return self._put(replace(topic, topic_id=topic_id, partitions=partitions, state="live"))

    async def configure(self, name: str, read: RegistryChange, configs: dict[str, str]) -> int:
        topic = self.topics.get(name)
        if topic is None or topic.state != "live" or read != await self.newest_change():
            raise RegistryChanged(name)
        return self._put(replace(topic, configs=dict(configs)))

    async def begin_delete(self, name: str, topic_id: bytes = b"") -> int:
        topic = self.topics.get(name)
        if topic is None or topic_id not in (b"", topic.topic_id):
            return self.version
        return self._put(replace(topic, state="deleting"))

    async def remove(self, name: str, topic_id: bytes = b"", owner: str = "") -> int:
        topic = self.topics.get(name)
        if topic is None or topic_id not in (b"", topic.topic_id) or owner not in ("", topic.owner):
            return self.version
        del self.topics[name]
        return self._changed()

    async def belongs_to(self, cluster_id: str) -> bool:
        self.cluster_id = self.cluster_id or cluster_id
        return self.cluster_id == cluster_id

    async def changes(self) -> AsyncIterator[RegistryChange]:
        queue: asyncio.Queue[RegistryChange] = asyncio.Queue()
        queue.put_nowait(await self.newest_change())
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    def _put(self, topic: DisklessTopic) -> int:
        if self.topics.get(topic.name) == topic:
            return self.version
        self.topics[topic.name] = topic
        return self._changed()

    def _changed(self) -> int:
        self.marks.append(os.urandom(8))
        for listener in self._listeners:
            listener.put_nowait(RegistryChange(self.version, self.marks[-1]))
        return self.version


class ModelFleetStore:
    def __init__(self, clock: Clock = wall_clock_ms) -> None:
        self._clock = clock
        self._leases: dict[str, tuple[int, ProxyRecord]] = {}
        self._since_ms: int | None = None
        self._held: dict[str, tuple[int, str]] = {}

    async def beat(self, record: ProxyRecord, lease_ms: int, *, runs: bool = False) -> Beaten:
        now = self._clock()
        if self._since_ms is None:
            self._since_ms = now if record.registry_version > 0 else 0
        if runs and record.proxy_id not in self._leases:
            self._since_ms = now
        self._leases[record.proxy_id] = (now + lease_ms, record)
        self._leases = {name: lease for name, lease in self._leases.items() if lease[0] > now}
        return Beaten(tuple(self._leases[name][1] for name in sorted(self._leases)), now - self._since_ms)

    def empty(self) -> None:
        """Lose everything."""
        self._leases.clear()
        self._held.clear()
        self._since_ms = None

    async def look(self) -> tuple[SeenProxy, ...]:
        now = self._clock()
        seen = [SeenProxy(record, until - now) for until, record in self._leases.values() if until > now]
        return tuple(sorted(seen, key=lambda one: one.record.proxy_id))

    async def leave(self, proxy_id: str) -> None:
        self._leases.pop(proxy_id, None)

    async def hold(self, name: str, holder: str, lease_ms: int) -> bool:
        now = self._clock()
        until, other = self._held.get(name, (0, ""))
        if until > now and other != holder:
            return False
        self._held[name] = (now + lease_ms, holder)
        return True
