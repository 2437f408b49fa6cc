"""Random histories with transactions, on a store, and on a view of a journal that is emptied and copied meanwhile.

A longer run: `TRANSACTION_STEPS=100000 pytest tests/integration/coordinator/test_transactions_against_model.py`. With
`TRANSACTION_SEED=…` the histories are other ones.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from redis.asyncio import Redis

from proxy import config
from proxy.coordinator import redis as coordinator_redis
from proxy.coordinator import shard_calls, view
from proxy.coordinator.cluster import Cluster, Store
from proxy.coordinator.redis import RedisCoordinator
from tests.integration.coordinator.clusters import PRIMARIES, StoreCluster, slot_of
from tests.integration.coordinator.transaction_histories import EXPIRATION_MS, TransactionHistory
from tests.support.memory_journal import MemoryJournal
from tests.support.memory_snapshots import MemorySnapshots
from tests.support.view_digest import digest_of

STEPS = int(os.environ.get("TRANSACTION_STEPS", "300"))
SEED = os.environ.get("TRANSACTION_SEED", "3")
COMPARED_EVERY, REBUILT_EVERY = 20, 150
EXPECTED = {
    ("commit", 0), ("commit", 19), ("commit", 45), ("commit", 47), ("commit", 48), ("commit", 51),
    ("commit_again", 0), ("enlist", 0), ("enlist", 1), ("enlist", 2), ("enlist", 4),
    ("apply_markers", 0), ("apply_markers", 1), ("aborted", 0), ("aborted", 1), ("swap", 0), ("ended", 1),
}  # fmt: skip
"""Outcomes without which a history would prove little."""


@pytest.fixture
def settings(settings: config.Redis) -> config.Redis:
    """Wait for the store for a minute: a long history meets moments in which the machine is busy."""
    return settings.model_copy(update={"timeout_ms": 60_000})


def small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set small limits, so that calls are split, and deletions and packing take several."""
    monkeypatch.setattr(shard_calls, "MAX_ITEMS_PER_CALL", 2)
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_DELETE_CALL", 3)
    monkeypatch.setattr(coordinator_redis, "FEWEST_ROWS_PER_PACK", 2)
    monkeypatch.setattr(coordinator_redis, "MOST_ROWS_PER_PACK", 4)
    monkeypatch.setattr(coordinator_redis, "MAX_ROWS_PER_PACK_CALL", 8)
    monkeypatch.setattr(view, "WAITS_S", (0,))


def coordinator_of(
    client: Store, settings: config.Redis, journal: MemoryJournal | None, snapshots: MemorySnapshots | None = None
) -> RedisCoordinator:
    return RedisCoordinator(
        client,
        settings,
        producer_id_expiration_ms=EXPIRATION_MS,
        producer_batches_remembered=5,
        journal=journal,
        snapshots=snapshots,
    )


@pytest.mark.timeout(7200)
async def test_histories_of_a_store(client: Redis, settings: config.Redis, monkeypatch) -> None:
    small_calls(monkeypatch)
    history = TransactionHistory(SEED, coordinator_of(client, settings, None), client, settings.shards)
    await history.begin()
    for step in range(STEPS):
        await history.step()
        if step % COMPARED_EVERY == 0:
            await history.compare()
    await history.compare()
    assert history.outcomes.keys() >= EXPECTED


@pytest.mark.timeout(7200)
async def test_histories_of_a_view(client: Redis, settings: config.Redis, monkeypatch) -> None:
    """The store is emptied again and again, and rebuilt from the newest snapshot and the journal."""
    small_calls(monkeypatch)
    journal, snapshots = MemoryJournal(), MemorySnapshots()
    history = TransactionHistory(SEED, coordinator_of(client, settings, journal, snapshots), client, settings.shards)
    await history.begin()
    for step in range(STEPS):
        await history.step()
        if step % COMPARED_EVERY == 0:
            await history.compare()
        if step % REBUILT_EVERY == REBUILT_EVERY - 1:
            live = await digest_of(client, history.real, settings.shards)
            await client.flushdb()
            history.real = coordinator_of(client, settings, journal, snapshots)
            assert await digest_of(client, history.real, settings.shards) == live
            for shard in range(settings.shards):
                await snapshots.take(history.real.view, shard, 1_000)
    await history.compare()
    assert history.outcomes.keys() >= EXPECTED


@pytest.mark.timeout(7200)
async def test_histories_of_a_cluster(cluster: StoreCluster, cluster_client: Cluster, monkeypatch) -> None:
    """Slots move between the primaries meanwhile."""
    small_calls(monkeypatch)
    settings = config.Redis(url=cluster.url, shards=PRIMARIES, settle_ms=0, timeout_ms=60_000)
    history = TransactionHistory(SEED, coordinator_of(cluster_client, settings, None), cluster_client, PRIMARIES)
    await history.begin()
    for step in range(STEPS):
        await history.step()
        if step % COMPARED_EVERY == 0:
            await history.compare()
            slot = slot_of(step // COMPARED_EVERY % PRIMARIES)
            await asyncio.to_thread(cluster.move, slot)
    await history.compare()
    assert history.outcomes.keys() >= EXPECTED
    assert cluster_client.redirects["moved"] > 0
