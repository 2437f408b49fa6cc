"""A cluster whose primaries die, and whose slots move again and again, under commits."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Sequence

import pytest
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy import config
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import connect
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, PartitionRun
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import NEIGHBOURS, partition_key, shard_of, shard_prefix
from tests.integration.coordinator.clusters import StoreCluster, slot_of
from tests.integration.coordinator.contract import TOPIC, plain
from tests.support.memory_journal import MemoryJournal

SHARDS = 3
LOGS = [group * NEIGHBOURS for group in range(SHARDS)]
FAULT_S = 90.0
MOVES = 12
TRYAGAIN_S = 30.0


def coordinator_of(client: Cluster, settings: config.Redis, journal: MemoryJournal | None) -> RedisCoordinator:
    return RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5, journal=journal
    )


async def commit(
    coordinator: RedisCoordinator, partition: int, failed: Callable[[str], object] = lambda reason: None
) -> int:
    """Commit a batch to a log; repeat the same commit until it has an answer, and return the offset."""
    segment = os.urandom(16)
    async with asyncio.timeout(FAULT_S):
        while True:
            try:
                (answer,) = await coordinator.commit(segment, [PartitionRun(TOPIC, partition, 1, (plain(),))])
                if answer.error_code == 0:
                    return answer.batches[0].base_offset
                failed(f"error {answer.error_code}")
            except CoordinatorUnavailable as error:
                failed(str(error))
            await asyncio.sleep(0.02)


async def found(coordinator: RedisCoordinator, partition: int) -> list[int]:
    (answer,) = await coordinator.find([FindRequest(TOPIC, partition, 0, 1 << 40)])
    return [row.base_offset for row in answer.rows]


async def each_offset_is_there_once(
    coordinator: RedisCoordinator, offsets: Sequence[Sequence[int]], *rounds: Sequence[int]
) -> None:
    """Check the offsets that commits returned by log; further rounds returned one of each log."""
    for partition, of_log, *own in zip(LOGS, offsets, *rounds, strict=True):
        given = sorted([*of_log, *own])
        assert given == list(range(len(given)))
        (answer,) = await coordinator.find([FindRequest(TOPIC, partition, given[-1], 1 << 40)])
        assert (answer.high_watermark, len(answer.rows)) == (len(given), 1)


class Commits:
    """Commits to all logs, one after the other in each, until it is ended."""

    def __init__(self, coordinator: RedisCoordinator) -> None:
        self.failures: list[str] = []
        """Their reasons."""
        self._coordinator = coordinator
        self._has_ended = asyncio.Event()
        self._tasks = [asyncio.create_task(self._commit_on(partition)) for partition in LOGS]

    async def end(self) -> list[list[int]]:
        """Return the offsets by log."""
        self._has_ended.set()
        return await asyncio.gather(*self._tasks)

    async def _commit_on(self, partition: int) -> list[int]:
        offsets = []
        while not self._has_ended.is_set():
            offsets.append(await commit(self._coordinator, partition, self.failures.append))
        return offsets


@pytest.mark.parametrize("has_journal", [True, False], ids=["view", "guarded"])
async def test_a_killed_primary_stops_its_shards_only_and_its_replica_goes_on(
    with_replicas: StoreCluster, has_journal: bool
) -> None:
    """The replica has every acknowledged commit before its primary is killed, because one case has no journal."""
    cluster = with_replicas
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=200, timeout_ms=1_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal() if has_journal else None)
    await coordinator.create_logs(TOPIC, LOGS)
    for partition in LOGS:
        assert [await commit(coordinator, partition) for _ in range(5)] == list(range(5))
    before = await check_fitness(client, settings, is_view=True)
    slot = slot_of(shard_of(partition_key(TOPIC, LOGS[0]), SHARDS))
    killed = cluster.owner(slot)
    cluster.wait(lambda: cluster.replicated(killed), "the replica does not have all writes")
    killed.kill()
    down = asyncio.Event()
    waiting = asyncio.create_task(commit(coordinator, LOGS[0], lambda _: down.set()))
    await down.wait()
    for partition in LOGS[1:]:
        assert [await commit(coordinator, partition) for _ in range(5)] == list(range(5, 10))
    assert await waiting == 5
    assert [await commit(coordinator, LOGS[0]) for _ in range(4)] == list(range(6, 10))
    assert [await found(coordinator, partition) for partition in LOGS] == [list(range(10))] * 3
    assert cluster.owner(slot) is cluster.replica_of(killed)
    assert await check_fitness(client, settings, is_view=True) != before
    await client.aclose()


@pytest.mark.parametrize("has_journal", [True, False], ids=["view", "guarded"])
async def test_slots_that_move_again_and_again_break_no_call(cluster: StoreCluster, has_journal: bool) -> None:
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=20_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal() if has_journal else None)
    await coordinator.create_logs(TOPIC, LOGS)
    commits = Commits(coordinator)
    for number in range(MOVES):
        await asyncio.to_thread(cluster.move, slot_of(number % SHARDS))
    for partition, offsets in zip(LOGS, await commits.end(), strict=True):
        assert offsets == list(range(len(offsets)))
        assert len(offsets) > 1
        (answer,) = await coordinator.find([FindRequest(TOPIC, partition, len(offsets) - 1, 1 << 40)])
        assert (answer.high_watermark, len(answer.rows)) == (len(offsets), 1)
    assert commits.failures == []
    assert client.redirects["moved"] >= MOVES // SHARDS
    await client.aclose()


async def test_a_migration_of_a_whole_slot_is_followed(cluster: StoreCluster) -> None:
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=20_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal())
    await coordinator.create_logs(TOPIC, LOGS)
    slot = slot_of(0)
    source = cluster.owner(slot)
    target = cluster.other(source)
    cluster.call(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", cluster.name_of(target))
    offsets: dict[int, list[int]] = {partition: [] for partition in LOGS}
    async with asyncio.timeout(FAULT_S):
        while await asyncio.to_thread(cluster.owner, slot) is not target:
            for partition in LOGS:
                offsets[partition].append(await commit(coordinator, partition))
    for partition in LOGS:
        offsets[partition].append(await commit(coordinator, partition))
        assert await found(coordinator, partition) == offsets[partition] == list(range(len(offsets[partition])))
    await client.aclose()


async def test_a_server_is_added_and_removed_under_commits(cluster: StoreCluster) -> None:
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=20_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal())
    await coordinator.create_logs(TOPIC, LOGS)
    home = cluster.owner(slot_of(0))
    commits = Commits(coordinator)
    added = await asyncio.to_thread(cluster.add)
    await asyncio.to_thread(cluster.move, slot_of(0), added)
    first = [await commit(coordinator, partition) for partition in LOGS]
    assert cluster.call(added, "CLUSTER", "COUNTKEYSINSLOT", slot_of(0)), "it has the shard"
    await asyncio.to_thread(cluster.move, slot_of(0), home)
    # The answer says that the shard has moved. A call that is on its way to a server that ends would have no answer.
    back = [await commit(coordinator, partition) for partition in LOGS]
    await asyncio.to_thread(cluster.remove, added)
    last = [await commit(coordinator, partition) for partition in LOGS]
    offsets = await commits.end()
    assert commits.failures == []
    await each_offset_is_there_once(coordinator, offsets, first, back, last)
    await client.aclose()


@pytest.mark.timeout(300)
async def test_a_shard_that_stays_half_moved_takes_no_commit_and_all_others_go_on(cluster: StoreCluster) -> None:
    """Each call of the shard is answered TRYAGAIN for half a minute, and fails after the timeout."""
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=2_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal())
    await coordinator.create_logs(TOPIC, LOGS)
    for partition in LOGS:
        assert await commit(coordinator, partition) == 0
    slot, failures, others = slot_of(shard_of(partition_key(TOPIC, LOGS[0]), SHARDS)), list[str](), 0

    def sizes() -> list[int]:
        return [int(cluster.call(server, "CLUSTER", "COUNTKEYSINSLOT", slot)) for server in cluster.servers]

    with cluster.moving(slot, cluster.other(cluster.owner(slot))) as steps:
        next(steps)
        before = sizes()
        waiting = asyncio.create_task(commit(coordinator, LOGS[0], failures.append))
        until_s = asyncio.get_running_loop().time() + TRYAGAIN_S
        while asyncio.get_running_loop().time() < until_s:
            others += 1
            assert [await commit(coordinator, partition) for partition in LOGS[1:]] == [others] * (SHARDS - 1)
            assert not waiting.done()
            await asyncio.sleep(0.1)
        assert sizes() == before
        assert client.redirects["tryagain"] > 0
    assert await waiting == 1
    assert len(failures) >= TRYAGAIN_S / 4
    assert [await found(coordinator, partition) for partition in LOGS[1:]] == [list(range(others + 1))] * (SHARDS - 1)
    assert await found(coordinator, LOGS[0]) == [0, 1]
    await client.aclose()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_redis_pys_own_router_breaks_calls_that_other_calls_have_under_way(cluster: StoreCluster) -> None:
    """Why the proxy has a client for each server (decision record 0150): after some MOVED, all connections end."""
    host, port = "127.0.0.1", cluster.servers[0].port
    keys = {cluster.owner(slot_of(shard)): shard_prefix(shard) + "list" for shard in range(SHARDS)}
    waiting_at = cluster.owner(slot_of(0))
    async with RedisCluster(host=host, port=port, retry=Retry(NoBackoff(), 0)) as router:
        waiting = asyncio.ensure_future(router.execute_command("BLPOP", keys[waiting_at], 20))
        await asyncio.sleep(0.2)
        moved = slot_of(1)
        for _ in range(router.reinitialize_steps):
            await asyncio.to_thread(cluster.move, moved)
            await router.execute_command("HGET", shard_prefix(1) + "meta", "state")
        with pytest.raises(RedisError):
            await waiting
    del router, waiting
    gc.collect()  # the router leaves connections open, of which the next tests must not hear
