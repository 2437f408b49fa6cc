"""All proxies notice a store that has lost acknowledged data, shard by shard; a healthy store is never fenced."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import (
    LATEST_TIMESTAMP,
    NO_PRODUCER_ID,
    CoordinatorUnavailable,
    DeleteRequest,
    FindRequest,
    ListRequest,
    PartitionRun,
    ProposedBatch,
    ShardFenced,
)
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import Losses, coordinator_of, copy_files, put_files

TOPIC = bytes(range(16))
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)
SHARDS = 2
ON = {
    shard: next(n for n in range(99) if shard_of(partition_key(TOPIC, n), SHARDS) == shard) for shard in range(SHARDS)
}
"""A partition of each shard."""


@pytest.fixture
def settings(losable: Store) -> config.Redis:
    return config.Redis(url=losable.url, shards=SHARDS, settle_ms=0)


@pytest.fixture
async def proxies(client: Redis, settings: config.Redis, losses: Losses) -> list[RedisCoordinator]:
    """Return three proxies that have reported what they know; partitions of both shards are live."""
    three = [coordinator_of(client, settings) for _ in range(3)]
    await three[0].create_logs(TOPIC, ON.values())
    for one in three:
        await one.shards.touch(range(SHARDS))
    return three


async def commit(coordinator: RedisCoordinator, shard: int = 0, **changes: int) -> int:
    """Return the base offset of one more batch; -1 if it was rejected."""
    run = PartitionRun(TOPIC, ON[shard], 1, (BATCH._replace(**changes),))
    (answer,) = await coordinator.commit(os.urandom(16), [run])
    assert answer.error_code in (NONE, KAFKA_STORAGE_ERROR)
    return answer.batches[0].base_offset if answer.batches else -1


async def refused_everywhere(proxies: list[RedisCoordinator], shard: int, why: str) -> None:
    for one in proxies:
        assert await commit(one, shard) == -1
        assert why in one.fence.fenced[shard]


async def test_an_emptied_store_is_fenced_for_all_by_any_proxy_that_knows(proxies, losses, client, settings) -> None:
    assert await commit(proxies[0]) == 0
    losses.empty()
    stranger = coordinator_of(client, settings)  # it may create logs, because it knows of no data
    await proxies[0].shards.touch(range(SHARDS))
    with pytest.raises(ShardFenced, match=r"is empty and was not .* coordinator unfence"):
        await stranger.create_logs(TOPIC, ON.values())
    await refused_everywhere([*proxies, stranger], 0, "is empty and was not")


async def test_a_store_that_another_proxy_recreated_meanwhile_is_fenced(proxies, losses, client, settings) -> None:
    losses.empty()
    stranger = coordinator_of(client, settings)
    await stranger.create_logs(TOPIC, ON.values())
    assert await commit(stranger) == 0
    await proxies[0].shards.touch([0])
    await refused_everywhere([*proxies, stranger], 0, "it is not the one that was written to before")


async def test_a_store_that_went_back_is_fenced_before_it_assigns_an_offset_twice(proxies, losses) -> None:
    copy = losses.copy()
    assert [await commit(proxies[0]) for _ in range(2)] == [0, 2]
    losses.restore(copy)
    assert await commit(proxies[0]) == -1
    await refused_everywhere(proxies, 0, "2 of its writes are gone")


async def test_a_loss_is_noticed_although_as_much_was_written_since(proxies, losses) -> None:
    copy = losses.copy()
    assert await commit(proxies[0]) == 0
    losses.restore(copy)
    assert [await commit(proxies[1]) for _ in range(3)] == [0, 2, 4], "it does not know the other proxy's offsets"
    losses.restore(losses.copy())  # one more life, which lost nothing
    assert await commit(proxies[2]) == 6
    await proxies[0].shards.touch([0])
    await refused_everywhere(proxies, 0, "1 of its writes are gone")


async def test_rows_that_a_proxy_knows_only_from_an_announcement_must_not_be_lost_either(proxies, losses) -> None:
    copy = losses.copy()
    heard = asyncio.Event()

    async def listen() -> None:
        async for announcement in proxies[1].announcements():
            if announcement is not None:
                heard.set()
            else:
                assert await commit(proxies[0]) == 0

    listening = asyncio.create_task(listen())
    await heard.wait()
    listening.cancel()
    losses.restore(copy)
    await proxies[1].shards.touch([0])
    await refused_everywhere(proxies, 0, "1 of its writes are gone")


async def test_only_the_partitions_of_the_fenced_shard_fail(proxies, losses) -> None:
    copy = losses.copy()
    assert await commit(proxies[0], 0) == 0
    losses.restore(copy)
    runs = [PartitionRun(TOPIC, ON[shard], 1, (BATCH,)) for shard in (1, 0)]
    answers = await proxies[0].commit(os.urandom(16), runs)
    assert [answer.error_code for answer in answers] == [NONE, KAFKA_STORAGE_ERROR]
    found = await proxies[0].find([FindRequest(TOPIC, ON[shard], 0, 1) for shard in (0, 1)])
    assert [(answer.error_code, len(answer.rows)) for answer in found] == [(KAFKA_STORAGE_ERROR, 0), (NONE, 1)]
    listed = await proxies[0].list_offsets([ListRequest(TOPIC, ON[shard], LATEST_TIMESTAMP) for shard in (0, 1)])
    assert [(answer.error_code, answer.offset) for answer in listed] == [(KAFKA_STORAGE_ERROR, -1), (NONE, 2)]
    deleted = await proxies[0].delete_records([DeleteRequest(TOPIC, ON[shard], -1) for shard in (0, 1)])
    assert [(answer.error_code, answer.log_start_offset) for answer in deleted] == [
        (KAFKA_STORAGE_ERROR, -1),
        (NONE, 2),
    ]
    for everywhere in (proxies[0].garbage(0, 1), proxies[0].used([bytes(16)]), proxies[0].tombstoned(0, 1)):
        with pytest.raises(ShardFenced, match="shard 0"):
            await everywhere
    assert len(await proxies[0].index_sizes()) == SHARDS


async def test_the_fence_falls_when_the_newest_data_is_restored_with_it(proxies, losses) -> None:
    old = losses.copy()
    assert await commit(proxies[0]) == 0
    newest = losses.copy()
    losses.restore(old)
    await refused_everywhere(proxies, 0, "1 of its writes are gone")
    losses.restore(newest)
    assert [await commit(one) for one in proxies] == [2, 4, 6]
    assert not proxies[0].fence.fenced


async def test_restores_that_lose_nothing_fence_nothing(proxies, losses) -> None:
    for number in range(6):
        assert await commit(proxies[number % 3]) == 2 * number
        losses.restore(losses.copy(), same_life=number == 3)
    for one in proxies:
        await one.shards.touch(range(SHARDS))
        assert not one.fence.fenced


async def test_the_store_of_another_deployment_is_not_fenced_by_a_proxy_that_is_led_there(
    proxies, losses, client, settings
) -> None:
    """An address may lead to another server from one call to the next."""
    assert await commit(proxies[0]) == 0
    proxies[0].shards.expect_identity("0a" * 16)
    losses.empty()
    healthy = coordinator_of(client, settings)
    healthy.shards.expect_identity("0b" * 16)
    await healthy.shards.touch(range(SHARDS))
    await healthy.create_logs(TOPIC, ON.values())
    for use in (proxies[0].shards.touch([0]), proxies[0].find([FindRequest(TOPIC, ON[0], 0, 1)]), commit(proxies[0])):
        with pytest.raises(CoordinatorUnavailable, match="leads to the store of another deployment"):
            await use
    assert await commit(healthy) == 0
    assert not healthy.fence.fenced
    await client.hset("diskless:{d0}:meta", "identity", b"\x0a" * 16)
    await proxies[0].shards.touch([0])
    assert proxies[0].fence.fenced, "its own, recreated"


async def test_an_idle_shard_is_known_after_any_number_of_restarts(proxies, client) -> None:
    assert await commit(proxies[0]) == 0
    for _ in range(300):
        await client.execute_command("DEBUG", "CHANGE-REPL-ID")
        await proxies[0].shards.touch([0])
    assert not proxies[0].fence.fenced
    assert len(await client.hget("diskless:{d0}:meta", "lives")) == 256 * 48
    assert await commit(proxies[0]) == 2


async def test_a_commit_that_comes_too_late_is_certainly_rejected(proxies) -> None:
    runs = [PartitionRun(TOPIC, ON[shard], 1, (BATCH,)) for shard in (1, 0)]
    now_ms = proxies[0].store_time_ms()
    answers = await proxies[0].commit(os.urandom(16), runs, not_after_ms=now_ms - 1)
    assert [answer.error_code for answer in answers] == [KAFKA_STORAGE_ERROR] * 2
    assert not proxies[0].fence.fenced
    answers = await proxies[0].commit(os.urandom(16), runs, not_after_ms=now_ms + 60_000)
    assert [answer.batches[0].base_offset for answer in answers] == [0, 0]
    job = coordinator_of(proxies[0]._client, proxies[0]._settings)
    assert job.store_time_ms() is None
    await job.shards.look()
    assert now_ms <= job.store_time_ms() <= now_ms + 60_000


# Servers that are restarted, and replicas that take over


@pytest.fixture
async def clients() -> AsyncIterator[Callable]:
    opened: list[Redis] = []

    async def make(url: str, settle_ms: int = 0) -> RedisCoordinator:
        settings = config.Redis(url=url, shards=SHARDS, settle_ms=settle_ms)
        opened.append(await connect(settings))
        return coordinator_of(opened[-1], settings)

    yield make
    for client in opened:
        await client.aclose()


async def reconnected(coordinator: RedisCoordinator) -> None:
    """The first call after a restart may find its connection broken."""
    with suppress(CoordinatorUnavailable):
        await coordinator.find([FindRequest(TOPIC, ON[1], 0, 1)])


@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_restart_that_loses_nothing_is_no_fence(start_store, clients, fsync: str) -> None:
    store = start_store("--appendfsync", fsync)
    coordinator = await clients(store.url)
    await coordinator.create_logs(TOPIC, ON.values())
    idempotent = {"producer_id": 5, "producer_epoch": 0}
    segment, run = bytes(16), PartitionRun(TOPIC, ON[0], 1, (BATCH._replace(**idempotent, base_sequence=0),))
    first = await coordinator.commit(segment, [run])
    for number in range(1, 4):
        store.stop()
        with pytest.raises(CoordinatorUnavailable, match=r"check that the store runs and that redis\.url is right"):
            await commit(coordinator)
        store.start()
        assert await coordinator.commit(segment, [run]) == [
            first[0]._replace(high_watermark=2 * number, log_start_offset=0)
        ]
        assert await commit(coordinator, **idempotent, base_sequence=2 * number) == 2 * number
    assert not coordinator.fence.fenced


async def lose_a_commit(store: Store, knows: RedisCoordinator, knows_less: RedisCoordinator, copy: Path) -> None:
    """The store comes back with its files from before the commit; the proxy that knows less reconnects first."""
    await knows.create_logs(TOPIC, ON.values())
    await knows_less.shards.touch(range(SHARDS))
    copy_files(store.directory, copy)
    assert await commit(knows) == 0
    store.stop()
    put_files(copy, store.directory)
    store.start()
    await reconnected(knows_less)


async def test_an_older_append_only_file_is_noticed(start_store, clients, tmp_path: Path) -> None:
    store = start_store("--appendfsync", "always")
    knows, knows_less = await clients(store.url), await clients(store.url)
    await lose_a_commit(store, knows, knows_less, tmp_path / "copy")
    assert [await commit(knows_less) for _ in range(2)] == [0, 2]
    await reconnected(knows)
    await refused_everywhere([knows, knows_less], 0, "1 of its writes are gone")
    assert await commit(knows_less, 1) == 0
    store.stop()
    store.start()
    await reconnected(knows_less)
    stranger = await clients(store.url)
    assert await commit(stranger) == -1, "the fence outlives the server and the proxies"


async def test_no_offset_is_assigned_twice_because_all_proxies_report_before_a_write(
    start_store, clients, tmp_path
) -> None:
    store = start_store("--appendfsync", "always")
    knows, knows_less = await clients(store.url, 800), await clients(store.url, 800)
    await lose_a_commit(store, knows, knows_less, tmp_path / "copy")
    early = [asyncio.create_task(commit(knows_less, shard)) for shard in (0, 1)]
    await reconnected(knows)
    await knows.shards.touch(range(SHARDS))
    assert await asyncio.gather(*early) == [-1, 0]


@pytest.mark.parametrize("lags", [False, True])
async def test_a_replica_that_takes_over(start_store, clients, lags: bool) -> None:
    primary = start_store()
    replica = start_store("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")
    knows = await clients(primary.url)
    await knows.create_logs(TOPIC, ON.values())
    assert await commit(knows, 1) == 0
    await knows._client.execute_command("WAIT", 1, 10_000)
    after = await clients(replica.url)
    if lags:
        await after._client.execute_command("REPLICAOF", "NO", "ONE")
    assert await commit(knows, 0) == 0
    if not lags:
        assert await knows._client.execute_command("WAIT", 1, 10_000) == 1
    primary.kill()
    # A proxy sees this if its redis.url leads to another server now.
    for shard, known in knows.fence.states().items():
        after.fence.learn(shard, known)
    if not lags:
        with pytest.raises(CoordinatorUnavailable, match=r"read.only replica"):
            await commit(after, 1)
        await after._client.execute_command("REPLICAOF", "NO", "ONE")
    assert [await commit(after, shard) for shard in (0, 1)] == ([-1, 2] if lags else [2, 2])
    assert list(after.fence.fenced) == ([0] if lags else [])
