"""A failover that loses bookkeeping only: the shard continues by itself; lost durable data still fences it."""

from __future__ import annotations

import os

import pytest

from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    DeleteRequest,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of
from tests.integration.coordinator.losses import coordinator_of
from tests.integration.guard.conftest import SHARDS, Proxy

TOPIC = bytes(range(16))
PARTITION, ANOTHER = [n for n in range(20) if shard_of(partition_key(TOPIC, n), SHARDS) == 0][:2]
BATCH = ProposedBatch(100, 2, 1_000, NO_PRODUCER_ID, -1, -1)


async def commit(coordinator: RedisCoordinator, segment: bytes = b"") -> int:
    (answer,) = await coordinator.commit(segment or os.urandom(16), [PartitionRun(TOPIC, PARTITION, 1, (BATCH,))])
    return answer.batches[0].base_offset if answer.batches else -1


async def tombstone(coordinator: RedisCoordinator) -> None:
    await coordinator.tombstone([bytes(16)])


async def retain(coordinator: RedisCoordinator) -> None:
    assert await coordinator.retain([RetainRequest(TOPIC, PARTITION, -1, 100, False)]) == [(0, 2)]


async def delete_records(coordinator: RedisCoordinator) -> None:
    assert await coordinator.delete_records([DeleteRequest(TOPIC, PARTITION, 1)]) == [(0, 1)]


async def create(coordinator: RedisCoordinator) -> None:
    await coordinator.create_logs(TOPIC, [ANOTHER])


async def delete(coordinator: RedisCoordinator) -> None:
    await coordinator.delete_logs(TOPIC, [PARTITION])


@pytest.mark.parametrize("keep_house", [tombstone, retain])
async def test_a_shard_that_lost_bookkeeping_continues(start_proxy, losses, keep_house) -> None:
    knows, new = await start_proxy(), await start_proxy()
    await knows.coordinator.create_logs(TOPIC, [PARTITION])
    assert [await commit(knows.coordinator) for _ in range(2)] == [0, 2]
    await new.coordinator.shards.touch([0])
    copy = losses.copy()
    await keep_house(knows.coordinator)
    losses.restore(copy)
    assert await commit(new.coordinator) == 4
    assert await commit(knows.coordinator) == 6
    for one in (knows, new, await start_proxy()):
        await one.watch.look()
        assert await commit(one.coordinator) > 6
        assert not one.coordinator.fence.fenced


@pytest.mark.parametrize("must_last", [delete_records, create, delete, commit])
async def test_a_shard_that_lost_more_is_fenced(start_proxy, losses, must_last) -> None:
    proxy = await start_proxy()
    await proxy.coordinator.create_logs(TOPIC, [PARTITION])
    await commit(proxy.coordinator)
    copy = losses.copy()
    await must_last(proxy.coordinator)
    await tombstone(proxy.coordinator)
    losses.restore(copy)
    assert await commit(proxy.coordinator) == -1


@pytest.mark.parametrize("freed_before", [True, False])
async def test_rows_whose_objects_may_be_deleted_do_not_come_back_unnoticed(start_proxy, losses, freed_before) -> None:
    """The object of a freed row is deleted after its tombstone, so the loss of the tombstone alone does no harm."""
    proxy, segment = await start_proxy(), os.urandom(16)
    await proxy.coordinator.create_logs(TOPIC, [PARTITION])
    await commit(proxy.coordinator, segment)
    await commit(proxy.coordinator)
    copy = losses.copy()
    await retain(proxy.coordinator)
    if freed_before:
        copy = losses.copy()
    assert await proxy.coordinator.tombstone([segment]) == [segment]
    losses.restore(copy)
    assert await commit(proxy.coordinator) == (4 if freed_before else -1)


async def test_the_shard_continues_only_after_every_proxy_has_reported(client, settings, losses) -> None:
    """The first proxy misses bookkeeping, the second one an offset."""
    settling = settings.model_copy(update={"settle_ms": 60_000})
    proxy, other = [Proxy(coordinator_of(client, settling), None, None) for _ in range(2)]  # type: ignore[arg-type]
    await proxy.coordinator.create_logs(TOPIC, [PARTITION])
    copy = losses.copy()
    await tombstone(proxy.coordinator)
    await other.coordinator.shards.touch([0])
    assert await commit(other.coordinator) == 0
    losses.restore(copy)
    await proxy.coordinator.shards.touch([0])
    await other.coordinator.shards.touch([0])
    assert other.coordinator.fence.fenced
    assert "2 of its writes are gone, with 2 offsets" in other.coordinator.fence.fenced[0]
    assert await commit(proxy.coordinator) == -1
