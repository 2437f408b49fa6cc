"""A shard of a cluster without a journal moves to another server and comes back: it has two lives with one server's ID.

Lives were compared by that ID alone. Then a shard that came back and moved on was fenced, although nothing was lost.
"""

from __future__ import annotations

import os

import pytest

from proxy import config
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.interface import PartitionRun
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key, shard_of
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from tests.integration.coordinator.clusters import StoreCluster, slot_of
from tests.integration.coordinator.contract import TOPIC, plain
from tests.integration.coordinator.stores import Store

SHARDS, LOG = 3, 0
SHARD = shard_of(partition_key(TOPIC, LOG), SHARDS)
SLOT = slot_of(SHARD)


class Shard:
    """The shard of one log, what its server has, and where it is."""

    def __init__(self, cluster: StoreCluster) -> None:
        self.cluster = cluster
        self.home = cluster.owner(SLOT)
        self.away, self.elsewhere = [one for one in cluster.servers if one is not self.home]

    def move(self, target: Store) -> None:
        self.cluster.move(SLOT, target)

    def copied(self) -> dict[bytes, bytes]:
        """Return a copy of all keys."""
        at = self.cluster.owner(SLOT)
        keys = self.cluster.call(at, "CLUSTER", "GETKEYSINSLOT", SLOT, 10_000)
        return {key: self.cluster.call(at, "DUMP", key) for key in keys}

    def restore(self, copy: dict[bytes, bytes]) -> None:
        """Put a copy in the place of what is there."""
        at = self.cluster.owner(SLOT)
        for key in self.cluster.call(at, "CLUSTER", "GETKEYSINSLOT", SLOT, 10_000):
            self.cluster.call(at, "DEL", key)
        for key, dumped in copy.items():
            self.cluster.call(at, "RESTORE", key, 0, dumped)


@pytest.fixture
def shard(cluster: StoreCluster) -> Shard:
    return Shard(cluster)


def proxy(client: Cluster, cluster: StoreCluster) -> RedisCoordinator:
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0)
    return RedisCoordinator(client, settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5)


async def commit(coordinator: RedisCoordinator, times: int) -> list[int]:
    offsets = []
    for _ in range(times):
        (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, LOG, 1, (plain(),))])
        assert answer.error_code == 0
        offsets.append(answer.batches[0].base_offset)
    return offsets


async def test_a_shard_that_comes_back_and_moves_on_has_lost_nothing(
    cluster_client: Cluster, cluster: StoreCluster, shard: Shard
) -> None:
    one, other = proxy(cluster_client, cluster), proxy(cluster_client, cluster)
    await one.create_logs(TOPIC, [LOG])
    offsets = await commit(one, 3) + await commit(other, 2)
    for target in (shard.away, shard.home, shard.away, shard.elsewhere, shard.home, shard.away):
        shard.move(target)
        offsets += await commit(one, 3)
        offsets += await commit(other, 1)
    assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("returns", [1, 2])
async def test_a_loss_that_goes_back_over_lives_of_one_server_is_counted_whole(
    cluster_client: Cluster, cluster: StoreCluster, shard: Shard, returns: int
) -> None:
    """The store goes back to its first life at a server, of which the proxy knows two or three lives."""
    coordinator = proxy(cluster_client, cluster)
    await coordinator.create_logs(TOPIC, [LOG])
    kept = await commit(coordinator, 2)
    copy = shard.copied()
    lost = await commit(coordinator, 5)
    for _ in range(returns):
        for target in (shard.away, shard.home):
            shard.move(target)
            lost += await commit(coordinator, 4)
    shard.restore(copy)
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, LOG, 1, (plain(),))])
    assert answer.error_code == KAFKA_STORAGE_ERROR
    look = (await coordinator.shards.look())[SHARD]
    assert look.why_fenced
    assert (look.writes_lost, look.offsets_lost) == (len(lost), len(lost))
    await coordinator.shards.unfence(SHARD, 0, [(TOPIC, LOG)])
    again = await commit(coordinator, 3)
    assert kept + lost == list(range(len(kept + lost)))
    assert min(again) > max(lost), "an offset is given twice"
    assert again == list(range(again[0], again[0] + 3))
    shard.move(shard.away)
    assert await commit(coordinator, 1) == [again[-1] + 1]
