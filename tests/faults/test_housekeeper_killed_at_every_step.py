"""Kill the holder of the housekeeping lease at every step: the next one deletes the same objects, and no others.

The store and the files are real. From outside, a killed process differs only in how many of its writes were carried
out. So the work runs once to count its writes, and then again for each number, with another proxy that finishes it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.brokers.broker_defaults import RetentionDefaults
from proxy.coordinator import redis as coordinator_redis
from proxy.coordinator import scripts
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import NO_PRODUCER_ID, FindRequest, PartitionRun, ProposedBatch
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import shard_prefix
from proxy.diskless.wal.segment import segment_key
from proxy.housekeeping.garbage import GarbageCollector
from proxy.housekeeping.index import IndexPacker
from proxy.housekeeping.retention import Retention
from proxy.storage.file import FileStorage
from proxy.telemetry.stats import Stats
from proxy.topics.topics import Topics
from tests.integration.coordinator.conftest import Store
from tests.registry_model import ModelTopicRegistry
from tests.support.fuse import Fuse, Killed

SHARDS = 3
GROWING, SHORT, DELETED = (bytes([number]) * 16 for number in (1, 2, 3))
TOPICS = {GROWING: {}, SHORT: {"retention.bytes": "150"}}
PARTITIONS = range(3)
ROW_BYTES = 100
SEGMENTS = 3
ORPHANS, FOREIGN = 2, "notes/readme"
WHOLE_LOG = 1 << 40
OLD_SECONDS = 7_200
FIRST_ROUND = ("pack", "retain", "collect", "sweep", "collect")


class FusedStorage:
    """Deletes objects one by one, because a kill may come between two of them."""

    def __init__(self, storage: FileStorage, fuse: Fuse) -> None:
        self._storage = storage
        self._fuse = fuse
        self.objects, self.upload = storage.objects, storage.upload

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._fuse.write(partial(self._storage.delete, [key]))


class House:
    """Store and bucket, always filled in the same way, and proxies that keep house in them."""

    def __init__(self, settings: config.Redis, client: Redis, directory: Path) -> None:
        self._settings = settings
        self.client = client
        self._directory = directory
        self.storage = FileStorage(config.Storage(url=directory.as_uri()))
        self.coordinator = self.coordinator_of(client)

    def coordinator_of(self, client: Redis) -> RedisCoordinator:
        return RedisCoordinator(
            client, self._settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
        )

    async def fill(self) -> None:
        """Write segments that all topics share, segments of one topic each, a deleted topic, orphans, and foreign
        objects."""
        await self.client.flushdb()
        self.coordinator = self.coordinator_of(self.client)  # a new one, because the old one knows what was deleted
        await self.storage.open()
        await self.storage.delete([key async for key in self.keys()])
        for topic_id in (*TOPICS, DELETED):
            await self.coordinator.create_logs(topic_id, PARTITIONS)
        for _ in range(SEGMENTS):
            await self._commit(*itertools.product((*TOPICS, DELETED), PARTITIONS))
            for topic_id in (*TOPICS, DELETED):
                await self._commit((topic_id, 0))
        await self.coordinator.delete_logs(DELETED, PARTITIONS)
        for _ in range(ORPHANS):
            self._put(segment_key(os.urandom(16)))
        self._put(FOREIGN)

    async def _commit(self, *logs: tuple[bytes, int]) -> None:
        segment = os.urandom(16)
        self._put(segment_key(segment))
        batch = ProposedBatch(ROW_BYTES, 1, 1, NO_PRODUCER_ID, -1, -1)
        runs = [PartitionRun(*log, 1 + place * ROW_BYTES, (batch,)) for place, log in enumerate(logs)]
        assert [answer.error_code for answer in await self.coordinator.commit(segment, runs)] == [0] * len(runs)

    def _put(self, key: str) -> None:
        """Put an old object, without making it durable."""
        path = self._directory / key
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0")
        old = time.time() - OLD_SECONDS
        os.utime(path, (old, old))

    async def keys(self) -> Any:
        async for stored in self.storage.objects():
            yield stored.key

    async def keep(self, work: Sequence[str], fuse: Fuse) -> None:
        """Do the work as one proxy; raises Killed."""
        registry = ModelTopicRegistry()
        for number, (topic_id, configs) in enumerate(TOPICS.items()):
            registry.topics[str(number)] = DisklessTopic(str(number), topic_id, len(PARTITIONS), "live", dict(configs))
        topics = Topics(registry, lease_runs=lambda: True)
        await topics.load()
        client = await connect(self._settings)
        _fuses[id(client)] = fuse
        try:
            coordinator = self.coordinator_of(client)
            storage: Any = FusedStorage(self.storage, fuse)
            garbage = config.Garbage(grace_ms=0, orphan_age_ms=OLD_SECONDS * 500)
            collector = GarbageCollector(coordinator, storage, garbage, Stats())
            steps: dict[str, Callable[[], Awaitable[object]]] = {
                "pack": IndexPacker(coordinator, topics, age_ms=0).sweep,
                "retain": partial(Retention(coordinator, topics).sweep, RetentionDefaults(-1, -1)),
                "collect": collector.collect,
                "sweep": collector.sweep_orphans,
            }
            for name in work:
                await steps[name]()
        finally:
            del _fuses[id(client)]
            await client.aclose()

    async def named(self) -> set[str]:
        """Return the keys of the objects that rows name."""
        requests = [FindRequest(topic_id, partition, 0, WHOLE_LOG) for topic_id in TOPICS for partition in PARTITIONS]
        answers = await self.coordinator.find(requests)
        late = [
            request._replace(offset=answer.log_start_offset)
            for request, answer in zip(requests, answers, strict=True)
            if answer.log_start_offset > 0
        ]
        answers += await self.coordinator.find(late)
        return {segment_key(row.segment) for answer in answers for row in answer.rows}

    async def ends(self) -> list[tuple[int, int, int, int]]:
        """Return log start, high watermark, bytes and rows of every log."""
        found = []
        for topic_id in TOPICS:
            for log in await self.coordinator.describe(topic_id, PARTITIONS):
                assert log is not None
                found.append((log.log_start_offset, log.high_watermark, log.size_bytes, log.rows))
        return found

    async def assert_nothing_live_is_gone(self) -> None:
        assert await self.named() <= {key async for key in self.keys()}

    async def assert_in_order(self) -> None:
        """Require exactly the objects that rows name and the foreign ones, and no tombstones or garbage."""
        assert {key async for key in self.keys()} == await self.named() | {FOREIGN}
        assert await self.coordinator.garbage(0, 100) == []
        assert await self.coordinator.tombstoned(0, 100) == []
        named = await self.named()
        for shard in range(SHARDS):
            prefix = shard_prefix(shard)
            assert not await self.client.exists(f"{prefix}garbage", f"{prefix}tombstones")
            assert {segment_key(segment) for segment in await self.client.hkeys(f"{prefix}segments")} <= named
            used = [struct.unpack_from(">q", use)[0] for use in await self.client.hvals(f"{prefix}segments")]
            assert all(count > 0 for count in used)


_fuses: dict[int, Fuse] = {}
"""Fuses by the ID of the store's client."""
READS = {"find", "describe", "use", "garbage", "list_offsets"}


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send scripts one by one that are normally sent together, each for only a few rows and segments."""
    evaluate = scripts._evaluate

    async def evaluate_one_by_one(
        client: Redis, script: scripts.Script, calls: Sequence[scripts.Call], *more: Any
    ) -> list[Any]:
        fuse = _fuses.get(id(client))
        if fuse is None or script.name in READS:
            return await evaluate(client, script, calls, *more)
        replies: list[Any] = []
        for call in calls:
            replies += await fuse.write(partial(evaluate, client, script, [call], *more))
        return replies

    monkeypatch.setattr(scripts, "_evaluate", evaluate_one_by_one)
    monkeypatch.setattr(coordinator_redis, "FEWEST_ROWS_PER_PACK", 2)
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_DELETE_CALL", 4)
    monkeypatch.setattr(coordinator_redis, "MAX_SEGMENTS_PER_CALL", 5)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store"), "--appendfsync", "no")
    store.start()
    yield store
    store.stop()


async def test_the_next_proxy_deletes_the_same_objects(store: Store, tmp_path: Path, one_by_one: None) -> None:
    settings = config.Redis(url=store.url, shards=SHARDS)
    client = await connect(settings)
    house = House(settings, client, tmp_path)
    await house.fill()
    unharmed = Fuse(None)
    await house.keep(FIRST_ROUND, unharmed)
    await house.keep(("collect",), unharmed)
    await house.assert_in_order()
    expected = await house.ends()
    assert expected[-1] != expected[0], "retention did nothing"
    assert unharmed.writes > 20
    for writes in range(1, unharmed.writes + 1):
        await house.fill()
        fuse = Fuse(writes)
        try:
            await house.keep((*FIRST_ROUND, "collect"), fuse)
        except Killed:
            await house.assert_nothing_live_is_gone()
        assert fuse.writes == writes, f"there are only {fuse.writes} writes"
        await house.keep((*FIRST_ROUND, "collect"), Fuse(None))
        await house.assert_in_order()
        assert await house.ends() == expected, f"killed after {writes} writes"
    await client.aclose()
    await house.storage.close()


async def test_two_proxies_at_a_time_delete_the_same_objects(store: Store, tmp_path: Path, one_by_one: None) -> None:
    """A proxy that was taken for dead comes back in the middle, next to the one that holds the lease now."""
    settings = config.Redis(url=store.url, shards=SHARDS)
    client = await connect(settings)
    house = House(settings, client, tmp_path)
    await house.fill()
    await asyncio.gather(*(house.keep((*FIRST_ROUND, "collect"), Fuse(None)) for _ in range(3)))
    await house.assert_nothing_live_is_gone()
    await house.keep(("collect",), Fuse(None))
    await house.assert_in_order()
    await client.aclose()
    await house.storage.close()
