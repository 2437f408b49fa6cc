"""Commits that replicas, or the disk, must have before they are acknowledged."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
import structlog
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator.connect import StoreUnfit, connect
from proxy.coordinator.fitness import check_fitness
from proxy.coordinator.interface import NO_PRODUCER_ID, CoordinatorUnavailable, PartitionRun, ProposedBatch
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.losses import coordinator_of

TOPIC = bytes(range(16))
RUN = PartitionRun(TOPIC, 0, 1, (ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1),))


@pytest.fixture
async def open_client() -> AsyncIterator[Callable]:
    opened: list[Redis] = []

    async def make(store: Store, **changes: object) -> tuple[Redis, config.Redis]:
        settings = config.Redis(url=store.url, shards=1, settle_ms=0, timeout_ms=1_000).model_copy(update=changes)
        opened.append(await connect(settings))
        return opened[-1], settings

    yield make
    for client in opened:
        await client.aclose()


@pytest.fixture
def pair(start_store: Callable[..., Store]) -> tuple[Store, Store]:
    primary = start_store()
    return primary, start_store("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-sync-delay", "0")


@pytest.mark.parametrize("wait_aof", [False, True])
async def test_a_commit_is_acknowledged_when_the_replica_has_it(pair, open_client, wait_aof: bool) -> None:
    primary, replica = pair
    coordinator = coordinator_of(*await open_client(primary, wait_replicas=1, wait_aof=wait_aof))
    await coordinator.create_logs(TOPIC, [0])
    assert await coordinator._client.execute_command("WAIT", 1, 10_000) == 1
    segment = os.urandom(16)
    replica.pause()
    try:
        with pytest.raises(CoordinatorUnavailable, match=r"0 of 1 replicas .* lower redis\.wait_replicas"):
            await coordinator.commit(segment, [RUN])
        # Another connection has written nothing: an answer that is repeated on it waits for the replica, too.
        another = coordinator_of(*await open_client(primary, wait_replicas=1, wait_aof=wait_aof))
        with pytest.raises(CoordinatorUnavailable, match="0 of 1 replicas"):
            await another.commit(segment, [RUN])
    finally:
        replica.resume()
    answer = None
    while answer is None:  # the replica writes its file each second
        with suppress(CoordinatorUnavailable):
            (answer,) = await another.commit(segment, [RUN])
    assert answer.batches[0].base_offset == 0
    primary.kill()
    promoted = coordinator_of(*await open_client(replica))
    await promoted._client.execute_command("REPLICAOF", "NO", "ONE")
    promoted.fence.learn(0, another.fence.newest(0))
    (answer,) = await promoted.commit(os.urandom(16), [RUN])
    assert answer.batches[0].base_offset == 2


async def test_a_store_that_can_not_wait_is_rejected(start_store, open_client) -> None:
    client, settings = await open_client(start_store("--appendonly", "no"), wait_aof=True, durability="trusted")
    with pytest.raises(StoreUnfit, match=r"redis\.wait_aof is set, and the store rejects WAITAOF"):
        await check_fitness(client, settings)


async def test_the_start_warns_of_replicas_that_are_not_needed_for_a_commit(pair, open_client) -> None:
    async def warnings(**changes: object) -> list[str]:
        client, settings = await open_client(pair[0], **changes)
        with structlog.testing.capture_logs() as logged:
            await check_fitness(client, settings, warn=True)
        return [entry["reason"] for entry in logged if entry["event"] == "store_at_risk"]

    client, _ = await open_client(pair[0])
    assert await client.execute_command("WAIT", 1, 10_000) == 1
    (reason,) = await warnings()
    assert reason.startswith("1 replicas are attached, and min-replicas-to-write is 0")
    (reason,) = await warnings(wait_replicas=2)
    assert "fewer than redis.wait_replicas (2): no produce is acknowledged" in reason
    await client.config_set("min-replicas-to-write", 1)
    assert await warnings() == []
