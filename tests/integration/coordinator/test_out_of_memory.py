"""A store whose memory is full gets room again: by retention, by deletions, and by every proxy that may do them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proxy import config
from proxy.config import Settings
from proxy.coordinator.connect import connect
from proxy.coordinator.fleet_store import RedisFleetStore
from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    CoordinatorUnavailable,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.interface_fleet import ProxyRecord
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.registry import RedisTopicRegistry
from proxy.housekeeping import housekeeper
from proxy.housekeeping.housekeeper import Housekeeper
from proxy.housekeeping.retention import Retention
from proxy.housekeeping.shadows import Shadows
from proxy.topics.topics import Topics
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import coordinator_of

TOPIC = bytes(range(16))
RUN = PartitionRun(TOPIC, 0, 1, (ProposedBatch(100, 1, 1_000, NO_PRODUCER_ID, -1, -1),))


class Idle:
    """Stands for work that this test ignores."""

    def __getattr__(self, name: str) -> Any:
        async def work(*_: object) -> None:
            pass

        return work


class Retains(Retention):
    """One log, of which only the newest row stays."""

    def __init__(self, coordinator: RedisCoordinator) -> None:
        self.coordinator = coordinator
        self.done = asyncio.Event()

    async def sweep(self, _: object) -> None:
        await self.coordinator.retain([RetainRequest(TOPIC, 0, -1, 1, False)])
        self.done.set()


def house_of(store: Store, fleet: RedisFleetStore, registry: RedisTopicRegistry, retention: Retention) -> Housekeeper:
    settings = Settings(
        rack="a",
        brokers={"bootstrap": ["127.0.0.1:1"]},
        redis={"url": store.url},
        storage={"url": "file:///nowhere"},
        log_retention_check_interval_ms=10,
    )
    idle: Any = Idle()
    cluster: Any = SimpleNamespace(view=SimpleNamespace(brokers={}), cluster_id="cluster")
    topics = Topics(registry, lease_runs=lambda: True)
    shadows = Shadows(cluster, topics, idle, confirm_s=60)
    return Housekeeper(settings, fleet, "me", cluster, retention, idle, shadows, idle, idle, fenced=dict)


async def test_the_housekeeper_of_a_store_that_was_started_full_makes_room(
    start_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeper, "_POLL_S", 0.01)
    store = start_store("--maxmemory-policy", "noeviction")
    settings = config.Redis(url=store.url, shards=1, settle_ms=50)
    client = await connect(settings)
    coordinator, fleet = coordinator_of(client, settings), RedisFleetStore(client)
    registry = RedisTopicRegistry(client, settings)
    await coordinator.create_logs(TOPIC, [0])
    for _ in range(50):
        await coordinator.commit(os.urandom(16), [RUN])
    await registry.reserve("orders", 1, {}, "me")
    await registry.activate("orders", TOPIC, 1)
    assert await registry.belongs_to("cluster")
    await client.aclose()
    store.kill()
    store.start()

    client = await connect(settings)
    coordinator, fleet = coordinator_of(client, settings), RedisFleetStore(client)
    registry = RedisTopicRegistry(client, settings)
    await client.config_set("maxmemory", "1mb")
    assert (await client.info("memory"))["used_memory"] > 1 << 20
    retention = Retains(coordinator)
    keeping = asyncio.create_task(house_of(store, fleet, registry, retention).keep_house())
    try:
        async with asyncio.timeout(20):
            await retention.done.wait()
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert (await coordinator.index_sizes())[0].rows == 1
    with pytest.raises(CoordinatorUnavailable):
        await coordinator.commit(os.urandom(16), [RUN])

    record = ProxyRecord("me", "a", (), 1)
    assert (await fleet.beat(record, 5_000)).records == (record,)
    assert await registry.belongs_to("cluster")
    read = (await registry.load()).change
    await registry.configure("orders", read, {"retention.ms": "1"})
    await registry.begin_delete("orders", TOPIC)
    await registry.remove("orders", TOPIC)
    assert (await registry.load()).topics == ()
    await client.aclose()
