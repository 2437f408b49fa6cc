"""A stand-in for managed services: a cluster whose user may run no CONFIG, half of INFO, and little of CLUSTER."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import structlog

from proxy import config
from proxy.check.findings import Level
from proxy.check.store import check_store as checked
from proxy.config import Settings
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import fitness
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import FindRequest, PartitionRun
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.layout import check_store
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.coordinator.shards import NEIGHBOURS
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.contract import TOPIC, plain
from tests.support.memory_journal import MemoryJournal

RIGHTS = "~diskless:* &diskless:* +@all -@admin -@dangerous -cluster +cluster|slots +cluster|shards"
INFO = "+info|replication +info|memory"
"""Sections that the user may see; neither `server` nor `persistence`."""
LOGS = [group * NEIGHBOURS for group in range(3)]
"""One partition in each shard."""


def allow(cluster: StoreCluster, *rights: str) -> str:
    """Create the user at each server; return a URL with it."""
    for server in cluster.servers:
        cluster.call(server, "ACL", "SETUSER", "managed", "reset", "on", ">word", *RIGHTS.split(), *rights)
    return cluster.url.replace("://", "://managed:word@")


@pytest.fixture
def settings(cluster: StoreCluster) -> config.Redis:
    return config.Redis(url=allow(cluster, *INFO.split()), shards=3, settle_ms=0)


@pytest.fixture
async def client(settings: config.Redis) -> AsyncIterator[Cluster]:
    client = await connect(settings)
    assert isinstance(client, Cluster)
    yield client
    await client.aclose()


def vouched_by(settings: config.Redis, who: str) -> config.Redis:
    return config.Redis.model_validate(settings.model_dump() | {"durability": who})


async def test_a_view_of_a_journal_needs_nobody_who_vouches(client: Cluster, settings: config.Redis) -> None:
    with structlog.testing.capture_logs() as logged:
        await check_store(client, settings, is_view=True)
    unseen = {entry["command"]: entry["remedy"] for entry in logged if entry["event"] == "store_not_checked"}
    assert unseen == {
        "INFO server": "allow the user of redis.url to run INFO",
        "CONFIG GET": "check by hand that cluster-require-full-coverage is no",
    }, "each is named once, and not once for each server"


async def test_without_a_journal_a_store_that_shows_nothing_needs_somebody_who_vouches(
    client: Cluster, settings: config.Redis
) -> None:
    with pytest.raises(StoreUnfit, match=r"shows neither by CONFIG GET .* set redis.durability to memorydb or trusted"):
        await check_store(client, settings)
    for who in ("memorydb", "trusted"):
        await check_store(client, vouched_by(settings, who))
        found = await fitness(client, vouched_by(settings, who))
        assert f"redis.durability: {who}" in found.vouched
        assert "appendonly is not shown" in found.vouched


async def test_info_is_enough_to_see_the_append_only_file(cluster: StoreCluster) -> None:
    settings = config.Redis(url=allow(cluster, *INFO.split(), "+info|persistence"), shards=3)
    client = await connect(settings)
    try:
        await check_store(client, settings)
        for server in cluster.servers:
            cluster.call(server, "CONFIG", "SET", "appendonly", "no")
        with pytest.raises(StoreUnfit, match="appendonly is no, so a restart of the store loses"):
            await check_store(client, settings)
        await check_store(client, vouched_by(settings, "trusted"))
        await check_store(client, settings, is_view=True)
    finally:
        for server in cluster.servers:
            cluster.call(server, "CONFIG", "SET", "appendonly", "yes")
        await client.aclose()


@pytest.mark.parametrize("who", ["appendonly", "memorydb", "trusted"])
@pytest.mark.parametrize("is_view", [True, False])
async def test_nobody_can_vouch_for_a_store_that_evicts(
    client: Cluster, settings: config.Redis, cluster: StoreCluster, who: str, is_view: bool
) -> None:
    server = cluster.servers[1]
    cluster.call(server, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    try:
        found = await fitness(client, vouched_by(settings, who), is_view=is_view)
    finally:
        cluster.call(server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert any(f"127.0.0.1:{server.port}: maxmemory-policy is volatile-lru" in why for why in found.unfit)


async def test_a_view_of_a_journal_needs_the_replication_id(cluster: StoreCluster) -> None:
    settings = config.Redis(url=allow(cluster, "+info|server", "+info|memory"), shards=3)
    client = await connect(settings)
    try:
        with pytest.raises(StoreUnfit, match="does not show its replication ID by INFO replication"):
            await check_store(client, settings, is_view=True)
        with structlog.testing.capture_logs() as logged:
            await check_store(client, vouched_by(settings, "trusted"))
    finally:
        await client.aclose()
    assert "INFO replication" in {entry["command"] for entry in logged}


@pytest.mark.parametrize("with_journal", [True, False])
async def test_the_coordinator_works_with_these_rights(
    client: Cluster, settings: config.Redis, with_journal: bool
) -> None:
    coordinator = RedisCoordinator(
        client,
        settings,
        producer_id_expiration_ms=86_400_000,
        producer_batches_remembered=5,
        journal=MemoryJournal() if with_journal else None,
    )
    await coordinator.create_logs(TOPIC, LOGS)
    runs = [PartitionRun(TOPIC, log, 1, (plain(2),)) for log in LOGS]
    for offset in (0, 2):
        answers = await coordinator.commit(os.urandom(16), runs)
        assert [answer.batches[0].base_offset for answer in answers] == [offset] * 3
    found = await coordinator.find([FindRequest(TOPIC, log, 0, 1 << 20) for log in LOGS])
    assert [len(one.rows) for one in found] == [2, 2, 2]
    assert await RedisTopicRegistry(client, settings).load() is not None
    fleet = RedisFleetStore(client)
    assert [one.proxy_id for one in (await fleet.beat(ProxyRecord("a", "rack-a", (), 1), 5_000)).records] == ["a"]


@pytest.mark.parametrize(("mode", "who"), [("required", "appendonly"), ("off", "memorydb")])
async def test_the_check_reports_all_that_it_could_not_see(
    settings: config.Redis, mode: str, who: str, tmp_path
) -> None:
    whole = Settings.model_validate(
        {
            "rack": "a",
            "brokers": {"bootstrap": ["broker:9092"]},
            "redis": settings.model_dump() | {"durability": who},
            "storage": {"url": tmp_path.as_uri()},
            "journal": {"mode": mode},
        }
    )
    found, client, _ = await checked(whole)
    assert client is not None
    await client.aclose()

    def texts(level: Level) -> list[str]:
        return [one.line for one in found if one.level == level]

    assert texts(Level.ERROR) == []
    unseen = [text for text in texts(Level.WARNING) if "does not show all that a start checks (" in text]
    config_get, info = sorted(text.partition(": ")[2] for text in unseen)
    assert config_get.startswith("CONFIG GET does")
    assert config_get.endswith("check by hand that cluster-require-full-coverage is no")
    assert info.startswith("INFO server does")
    assert any("MemoryDB keeps acknowledged commits" in text for text in texts(Level.OK)) == (mode == "off")
