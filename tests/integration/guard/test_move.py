"""The state of the coordinator is built in another store while commits go on: both stores then have the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.config import Settings
from proxy.coordinator.by_settings import coordinator_on, registry_on
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.interface import LATEST_TIMESTAMP, FindRequest, ListRequest, PartitionRun
from proxy.coordinator.redis import RedisCoordinator
from proxy.guard.identity import settle_identity
from proxy.guard.journal_identity import settle_journal
from proxy.guard.move import build, settings_of_target
from proxy.snapshots.stored import StoredSnapshots
from proxy.storage.file import FileStorage
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.guard.conftest import SHARDS
from tests.support.memory_journal import MemoryJournal
from tests.support.view_digest import digest_of

LOGS = range(20)
"""Partitions of one topic, in both shards."""
_ROOM = 1 << 20


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def whole(settings: config.Redis, storage: FileStorage, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "rack": "a",
            "brokers": {"bootstrap": ["127.0.0.1:1"]},
            "redis": settings.model_dump(),
            "storage": {"url": (tmp_path / "wal").as_uri()},
        }
    )


@pytest.fixture
async def coordinator(client: Redis, whole: Settings, storage: FileStorage, journal: MemoryJournal) -> RedisCoordinator:
    """Begin a deployment with a topic and some records on the present store."""
    await settle_identity(client, storage)
    await settle_journal(client, storage, journal, SHARDS + 1)
    coordinator = coordinator_on(client, whole, journal, StoredSnapshots(storage, journal))
    await registry_on(client, whole, coordinator).reserve("orders", len(LOGS), {}, "me")
    await coordinator.create_logs(TOPIC, LOGS)
    for _ in range(5):
        await commit(coordinator)
    return coordinator


async def commit(coordinator: RedisCoordinator) -> None:
    runs = [PartitionRun(TOPIC, log, 1, (plain(2),)) for log in LOGS]
    answers = await coordinator.commit(os.urandom(16), runs)
    assert all(answer.batches[0].error_code == 0 for answer in answers)


async def rows(coordinator: RedisCoordinator) -> list[list[tuple[bytes, int]]]:
    found = await coordinator.find([FindRequest(TOPIC, log, 0, _ROOM) for log in LOGS])
    return [[(row.segment, row.base_offset) for row in one.rows] for one in found]


async def test_a_store_gets_all_that_the_present_one_has(
    client: Redis,
    coordinator: RedisCoordinator,
    whole: Settings,
    storage: FileStorage,
    journal: MemoryJournal,
    start_store: Callable[..., Store],
) -> None:
    target = settings_of_target(whole, start_store().url)
    new = await connect(target.redis)
    assert isinstance(new, Redis)
    ended = asyncio.Event()

    async def commit_until_the_end() -> int:
        commits = 0
        while not ended.is_set():
            await commit(coordinator)
            commits += 1
        return commits

    load = asyncio.create_task(commit_until_the_end())
    try:
        done: list[int] = []
        moved = await build(new, target, storage, journal, done.append)
        assert (moved.partitions, sum(done)) == (SHARDS + 1, SHARDS + 1)
        assert moved.applied_records > SHARDS * 5
        ended.set()
        assert await load > 0
        await build(new, target, storage, journal, done.append)
        there = coordinator_on(new, target, journal)
        assert await digest_of(new, there, SHARDS) == await digest_of(client, coordinator, SHARDS)
        snapshot = await registry_on(new, target, there).load()
        assert snapshot == await registry_on(client, whole, coordinator).load()
    finally:
        load.cancel()
        await new.aclose()


async def test_proxies_of_both_stores_go_on_from_each_others_commits(
    coordinator: RedisCoordinator, whole: Settings, storage: FileStorage, journal: MemoryJournal, tmp_path: Path
) -> None:
    with StoreCluster(tmp_path / "cluster") as cluster:
        target = settings_of_target(whole, cluster.url)
        new = await connect(target.redis)
        try:
            await build(new, target, storage, journal, lambda _: None)
            there = coordinator_on(new, target, journal)
            ends = [ListRequest(TOPIC, log, LATEST_TIMESTAMP) for log in LOGS]
            for one in (coordinator, there, there, coordinator):
                await commit(one)
                await one.list_offsets(ends)
            await commit(there)
            assert {end.offset for end in await coordinator.list_offsets(ends)} == {18}, "it has not seen the last one"
            for one in (coordinator, there):
                await one.catch_up([(TOPIC, log) for log in LOGS])
            assert {end.offset for end in await coordinator.list_offsets(ends)} == {20}
            assert await rows(there) == await rows(coordinator)
            assert [offset for _, offset in (await rows(there))[0]] == list(range(0, 20, 2))
        finally:
            await new.aclose()


async def test_a_store_of_another_deployment_is_not_touched(
    coordinator: RedisCoordinator,
    whole: Settings,
    storage: FileStorage,
    journal: MemoryJournal,
    start_store: Callable[..., Store],
    tmp_path: Path,
) -> None:
    target = settings_of_target(whole, start_store().url)
    new = await connect(target.redis)
    other = FileStorage(config.Storage(url=(tmp_path / "other").as_uri()))
    await other.open()
    try:
        await settle_identity(new, other)
        with pytest.raises(StoreUnfit, match="one URL is wrong"):
            await build(new, target, storage, journal, lambda _: None)
        with pytest.raises(StoreUnfit, match="the topic was recreated"):
            await build(new, target, storage, MemoryJournal(), lambda _: None)
    finally:
        await other.close()
        await new.aclose()


def test_the_url_of_the_new_store_is_checked(whole: Settings) -> None:
    with pytest.raises(StoreUnfit, match="--to: names several hosts"):
        settings_of_target(whole, "redis://a:1,b:2")
    with pytest.raises(StoreUnfit, match="names the store that"):
        settings_of_target(whole, whole.redis.url)
    without = whole.model_copy(update={"journal": whole.journal.model_copy(update={"mode": "off"})})
    with pytest.raises(StoreUnfit, match=r"journal.mode is off, .* stop all proxies and jobs"):
        settings_of_target(without, "redis://a:1")
