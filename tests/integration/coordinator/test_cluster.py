"""The coordinator on a real cluster of three primaries, whose slots move and whose servers die."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from itertools import islice

import pytest
import redis as blocking_redis
from redis.exceptions import TryAgainError

from proxy import config
from proxy.coordinator import scripts
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import check_fitness, fitness
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import CoordinatorUnavailable, FindRequest, PartitionRun
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.layout import check_store
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.scripts import Call
from proxy.coordinator.shards import NEIGHBOURS, partition_key, script_keys, shard_of, shard_prefix
from tests.integration.coordinator.clusters import StoreCluster, slot_of
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.contract import TOPIC, plain
from tests.support.memory_journal import MemoryJournal

SHARDS = 3
LOGS = [group * NEIGHBOURS for group in range(SHARDS)]
"""One partition in each shard."""
Make = Callable[[], RedisCoordinator]


@pytest.fixture
def settings(cluster: StoreCluster) -> config.Redis:
    return config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0)


@pytest.fixture
async def client(settings: config.Redis) -> AsyncIterator[Cluster]:
    client = await connect(settings)
    assert isinstance(client, Cluster)
    yield client
    await client.aclose()


@pytest.fixture(params=["guarded", "view"])
def make(request: pytest.FixtureRequest, client: Cluster, settings: config.Redis) -> Make:
    journal = MemoryJournal() if request.param == "view" else None

    def make() -> RedisCoordinator:
        return RedisCoordinator(
            client,
            settings,
            producer_id_expiration_ms=86_400_000,
            producer_batches_remembered=5,
            journal=journal,
        )

    return make


def shard(partition: int) -> int:
    return shard_of(partition_key(TOPIC, partition), SHARDS)


async def commit_all(coordinator: RedisCoordinator) -> list[int]:
    """Commit a batch to each log; return their offsets, -1 for those whose outcome is an error."""
    runs = [PartitionRun(TOPIC, partition, 1, (plain(),)) for partition in LOGS]
    answers = await coordinator.commit(os.urandom(16), runs)
    return [answer.batches[0].base_offset if answer.error_code == 0 else -1 for answer in answers]


async def found(coordinator: RedisCoordinator, partition: int) -> list[int]:
    (answer,) = await coordinator.find([FindRequest(TOPIC, partition, 0, 1 << 40)])
    assert answer.error_code == 0
    return [row.base_offset for row in answer.rows]


async def test_a_segment_is_committed_at_all_servers_at_the_same_time(make: Make, cluster: StoreCluster) -> None:
    coordinator = make()
    await coordinator.create_logs(TOPIC, LOGS)
    assert {cluster.owner(slot_of(shard(partition))).port for partition in LOGS} == {
        server.port for server in cluster.servers
    }
    assert [await commit_all(coordinator) for _ in range(3)] == [[0] * 3, [1] * 3, [2] * 3]
    assert [await found(coordinator, partition) for partition in LOGS] == [[0, 1, 2]] * 3
    assert await coordinator.used([bytes(16)]) == [False]
    for server in cluster.servers:
        statistics = cluster.call(server, "INFO", "commandstats")
        assert statistics["cmdstat_evalsha"]["calls"] >= 5


async def test_the_store_is_fit_and_registry_and_fleet_work(client: Cluster, settings: config.Redis) -> None:
    await check_store(client, settings)
    registry = RedisTopicRegistry(client, settings)
    assert await registry.reserve("orders", 3, {}, "owner") == 1
    fleet = RedisFleetStore(client)
    record = ProxyRecord("a", "rack-a", (), 1)
    assert [one.proxy_id for one in (await fleet.beat(record, 5_000)).records] == ["a"]
    assert [seen.record.proxy_id for seen in await fleet.look()] == ["a"]
    await fleet.leave("a")


async def test_the_check_warns_of_a_cluster_that_stops_with_one_primary(
    client: Cluster, settings: config.Redis, cluster: StoreCluster
) -> None:
    name = "cluster-require-full-coverage"
    assert (await fitness(client, settings)).risks == ()
    cluster.call(cluster.servers[1], "CONFIG", "SET", name, "yes")
    try:
        (risk,) = (await fitness(client, settings)).risks
    finally:
        cluster.call(cluster.servers[1], "CONFIG", "SET", name, "no")
    assert risk.remedy == f"set {name} to no on each server"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/0", "redis+cluster://127.0.0.1:{port}"])
async def test_a_url_of_the_wrong_kind_is_named(url: str, cluster: StoreCluster, store: Store) -> None:
    is_cluster = "cluster" in url
    settings = config.Redis(url=url.format(port=store.port if is_cluster else cluster.servers[0].port))
    client = await connect(settings)
    with pytest.raises(
        CoordinatorUnavailable if is_cluster else StoreUnfit,
        match="Cluster mode is not enabled" if is_cluster else r"set redis.url to redis\+cluster://",
    ):
        await check_store(client, settings)
    await client.aclose()


async def test_a_script_that_declares_one_key_would_run_on_a_part_of_a_shard(cluster: StoreCluster) -> None:
    """Why scripts declare a key that never exists: the server's own rules for a slot that moves."""
    prefix, slot = shard_prefix(0), slot_of(0)
    has_meta = "return redis.call('EXISTS', ARGV[1])"
    source = cluster.owner(slot)
    target = cluster.other(source)
    cluster.call(source, "HSET", prefix + "meta", "state", "1")
    cluster.call(source, "HSET", prefix + "logs", "log", "1")
    with cluster.moving(slot, target):
        with blocking_redis.Redis(port=target.port, single_connection_client=True) as asking:
            asking.execute_command("ASKING")
            assert asking.execute_command("EVAL", has_meta, 1, prefix, prefix + "meta") == 0
            asking.execute_command("ASKING")
            with pytest.raises(TryAgainError):
                asking.execute_command("EVAL", has_meta, 2, *script_keys(prefix), prefix + "meta")
        with pytest.raises(TryAgainError):
            cluster.call(source, "EVAL", has_meta, 2, *script_keys(prefix), prefix + "meta")
    assert cluster.owner(slot) is target


async def test_no_commit_happens_on_a_shard_that_moves_key_by_key(make: Make, cluster: StoreCluster) -> None:
    coordinator = make()
    await coordinator.create_logs(TOPIC, LOGS)
    await commit_all(coordinator)
    moved = shard(LOGS[0])
    source = cluster.owner(slot_of(moved))
    with cluster.moving(slot_of(moved), cluster.other(source)) as steps:
        committing = [asyncio.create_task(commit_all(coordinator)) for _ in range(4)]
        for _ in islice(steps, 3):
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in committing)
        # The other shards serve meanwhile.
        assert await found(coordinator, LOGS[1])
        for _ in steps:
            await asyncio.sleep(0.01)
    offsets = await asyncio.gather(*committing)
    for log in range(len(LOGS)):
        assert sorted(one[log] for one in offsets) == [1, 2, 3, 4]
    assert [await found(coordinator, partition) for partition in LOGS] == [[0, 1, 2, 3, 4]] * 3
    assert not cluster.call(source, "CLUSTER", "COUNTKEYSINSLOT", slot_of(moved))


async def test_a_move_that_takes_longer_than_the_timeout_fails_the_calls_of_that_shard_only(
    cluster: StoreCluster,
) -> None:
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=500)
    client = await connect(settings)
    coordinator = RedisCoordinator(
        client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
    )
    await coordinator.create_logs(TOPIC, LOGS)
    moved = shard(LOGS[0])
    with cluster.moving(slot_of(moved), cluster.other(cluster.owner(slot_of(moved)))):
        assert await commit_all(coordinator) == [-1, 0, 0]
        with pytest.raises(CoordinatorUnavailable, match="moves to another server"):
            await coordinator.find([FindRequest(TOPIC, LOGS[0], 0, 1)])
    assert await commit_all(coordinator) == [0, 1, 1]
    await client.aclose()


async def test_a_slot_that_has_moved_is_found_by_one_redirect(client: Cluster, cluster: StoreCluster) -> None:
    call = Call(shard_prefix(0), (b"name",))
    await scripts.run(client, "try_commands", call)
    before = client.redirects["moved"]
    with cluster.moving(slot_of(0), cluster.other(cluster.owner(slot_of(0)))):
        pass
    for _ in range(3):
        assert await scripts.run(client, "try_commands", call) == []
    assert client.redirects["moved"] == before + 1


async def test_announcements_go_on_after_their_slot_has_moved(make: Make, cluster: StoreCluster) -> None:
    coordinator = make()
    await coordinator.create_logs(TOPIC, LOGS)
    async with aclosing(coordinator.announcements()) as announcements, asyncio.timeout(60):
        assert await anext(announcements) is None
        await commit_all(coordinator)
        assert {(await anext(announcements)).partition for _ in LOGS} == set(LOGS)  # type: ignore[union-attr]
        moved = shard(LOGS[0])
        with cluster.moving(slot_of(moved), cluster.other(cluster.owner(slot_of(moved)))):
            pass
        assert await anext(announcements) is None
        heard: set[int] = set()
        while heard != set(LOGS):
            await commit_all(coordinator)
            while heard != set(LOGS):
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        message = await anext(announcements)
                        heard |= {message.partition} if message is not None else set()
                        continue
                break


async def test_the_life_of_the_store_changes_when_a_shard_moves(
    client: Cluster, settings: config.Redis, cluster: StoreCluster
) -> None:
    before = await check_fitness(client, settings)
    assert await check_fitness(client, settings) == before
    with cluster.moving(slot_of(0), cluster.other(cluster.owner(slot_of(0)))):
        pass
    assert await check_fitness(client, settings) != before


async def test_a_call_that_breaks_is_not_sent_again(client: Cluster, cluster: StoreCluster, make: Make) -> None:
    """A server that is stopped answers nothing, so the calls of its shard end with an unknown outcome, once."""
    coordinator = make()
    await coordinator.create_logs(TOPIC, LOGS)
    await commit_all(coordinator)
    stopped = cluster.owner(slot_of(shard(LOGS[0])))
    stopped.pause()
    try:
        offsets = await commit_all(coordinator)
    finally:
        stopped.resume()
    assert offsets[0] == -1
    assert offsets[1:] == [1, 1]
    assert await found(coordinator, LOGS[0]) in ([0], [0, 1])
