"""Shards that accept no more rows, according to the coordinator's figures."""

from __future__ import annotations

from typing import cast

from structlog.testing import capture_logs

from proxy import config
from proxy.coordinator.interface import Coordinator, IndexSize
from proxy.coordinator.shards import partition_key, shard_of
from proxy.diskless.index_watch import IndexWatch

TOPIC = bytes(16)
SHARDS = 4


class Sizes:
    """A coordinator that knows nothing else."""

    def __init__(self) -> None:
        self.sizes = [IndexSize(0, 0)] * SHARDS

    async def index_sizes(self) -> list[IndexSize]:
        return self.sizes


def watch_of(sizes: Sizes, limit: int) -> IndexWatch:
    settings = config.Redis(url="redis://127.0.0.1:6379/0", shards=SHARDS, max_index_bytes=limit)
    return IndexWatch(cast(Coordinator, sizes), settings)


async def test_partitions_of_a_full_shard_are_rejected_until_there_is_room() -> None:
    sizes = Sizes()
    watch = watch_of(sizes, 1_000)
    assert not any(watch.is_full(TOPIC, partition) for partition in range(20))
    sizes.sizes = [IndexSize(9, 999), IndexSize(10, 1_000), IndexSize(0, 0), IndexSize(11, 1_001)]
    with capture_logs() as logs:
        await watch.look()
        await watch.look()
    assert [(one["event"], one["shard"], one["index_bytes"]) for one in logs] == [
        ("index_full", 1, 1_000),
        ("index_full", 3, 1_001),
    ]
    shards = [shard_of(partition_key(TOPIC, partition), SHARDS) for partition in range(20)]
    assert [watch.is_full(TOPIC, partition) for partition in range(20)] == [shard in {1, 3} for shard in shards]
    sizes.sizes = [IndexSize(0, 0)] * 3 + [IndexSize(11, 1_001)]
    with capture_logs() as logs:
        await watch.look()
    assert [(one["event"], one["shard"]) for one in logs] == [("index_has_room", 1)]
    assert [watch.is_full(TOPIC, partition) for partition in range(20)] == [shard == 3 for shard in shards]


async def test_without_a_limit_no_shard_is_full() -> None:
    sizes = Sizes()
    watch = watch_of(sizes, 0)
    sizes.sizes = [IndexSize(10**9, 10**12)] * SHARDS
    await watch.look()
    assert watch.sizes == sizes.sizes
    assert not any(watch.is_full(TOPIC, partition) for partition in range(20))
