"""A deployment without a journal moves to a cluster: its proxies are stopped, and its keys are copied, as by
`valkey-cli --cluster import … --cluster-copy`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from proxy import config
from proxy.coordinator.cluster import Store
from proxy.coordinator.connect import connect
from proxy.coordinator.interface import FindRequest, PartitionRun, Row
from proxy.storage.file import FileStorage
from tests.integration.coordinator.clusters import StoreCluster
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.guard.conftest import SHARDS, Proxy, proxy_of

LOGS = range(40)
"""Partitions of one topic, in both shards."""
_ROOM = 1 << 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def settings_there(settings: config.Redis, cluster: StoreCluster) -> config.Redis:
    return settings.model_copy(update={"url": cluster.url})


@pytest.fixture
async def client_there(settings_there: config.Redis) -> AsyncIterator[Store]:
    client = await connect(settings_there)
    yield client
    await client.aclose()


async def copy_all(client: Redis, cluster: StoreCluster) -> None:
    """Copy every key to the server that has its slot."""
    async for key in client.scan_iter():
        target = cluster.owner(key_slot(key))
        assert await client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5_000, "COPY") == b"OK"


async def commit(proxy: Proxy) -> list[int]:
    """Return the base offset of a batch of two records in each log; -1 if it was rejected."""
    runs = [PartitionRun(TOPIC, log, 1, (plain(2),)) for log in LOGS]
    answers = await proxy.coordinator.commit(os.urandom(16), runs)
    return [answer.batches[0].base_offset if answer.batches else -1 for answer in answers]


async def rows(proxy: Proxy) -> list[tuple[Row, ...]]:
    return [answer.rows for answer in await proxy.coordinator.find([FindRequest(TOPIC, log, 0, _ROOM) for log in LOGS])]


async def begin(proxy: Proxy) -> None:
    await proxy.topics.registry.reserve("orders", len(LOGS), {}, "me")
    await proxy.coordinator.create_logs(TOPIC, LOGS)
    for _ in range(3):
        await commit(proxy)


async def test_the_copy_goes_on_where_the_old_store_ended(
    start_proxy, client: Redis, storage: FileStorage, cluster: StoreCluster, client_there: Store, settings_there
) -> None:
    old = await start_proxy()
    await begin(old)
    await old.watch.keep_known()
    await copy_all(client, cluster)
    before = await rows(old)
    assert [len(some) for some in before] == [3] * len(LOGS)

    new = await proxy_of(client_there, settings_there, storage)
    assert await rows(new) == before
    assert await commit(new) == [6] * len(LOGS)
    assert await new.topics.registry.load() == await old.topics.registry.load()
    await new.watch.look()
    assert (new.watch.unfit, new.coordinator.fence.fenced) == (None, {})


async def test_a_copy_that_lacks_writes_takes_none(
    start_proxy, client: Redis, storage: FileStorage, cluster: StoreCluster, client_there: Store, settings_there
) -> None:
    old = await start_proxy()
    await begin(old)
    await copy_all(client, cluster)
    assert await commit(old) == [6] * len(LOGS)
    await old.watch.keep_known()

    new = await proxy_of(client_there, settings_there, storage)
    assert await commit(new) == [-1] * len(LOGS)
    looks = await new.coordinator.shards.look()
    assert [bool(look.why_fenced) for look in looks] == [True] * SHARDS
    assert {look.offsets_lost for look in looks} != {0}
