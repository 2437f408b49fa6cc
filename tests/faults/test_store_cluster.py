"""The coordinator's store is a cluster under a load: a primary is killed, and slots move; nothing is lost.

The load's ledger knows every acknowledged record and its offset. The proxies have a journal, and no operator does
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.demo.stack import Stack
from tests.integration.coordinator.clusters import PRIMARIES, StoreCluster, slot_of
from tests.support.load import assert_right, load_of, wait_for_more
from tests.support.topics import CLASSIC, DISKLESS

SHARDS = 6
pytestmark = pytest.mark.stack


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StoreCluster]:
    with StoreCluster(tmp_path / "cluster", replicas=True) as cluster:
        yield cluster


@pytest.fixture
def stack(cluster: StoreCluster, new_stack: Callable[..., Stack]) -> Stack:
    overrides = {
        "redis": {"url": cluster.url, "shards": SHARDS},
        "diskless_append_commit_interval_ms": 50,
    }
    return new_stack(overrides=overrides, racks=("rack-a",), proxies_per_rack=2)


def test_nothing_is_lost_if_a_primary_is_killed_and_slots_move(cluster: StoreCluster, stack: Stack) -> None:
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS, 200)
        killed = cluster.owner(slot_of(0))
        killed.kill()
        wait_for_more(load, CLASSIC)
        promoted = cluster.servers[cluster.servers.index(killed) + PRIMARIES]
        cluster.wait(lambda: cluster.owner(slot_of(0)) is promoted, "no replica is promoted")
        wait_for_more(load, DISKLESS, 500)
        for shard in range(SHARDS):
            source = cluster.owner(slot_of(shard))
            target = next(server for server in cluster.running_primaries() if server is not source)
            cluster.move(slot_of(shard), target)
            wait_for_more(load, DISKLESS, 100)
        tally = load.stop()
    assert_right(tally)


def test_nothing_is_lost_if_all_servers_are_restarted_one_after_another(cluster: StoreCluster, stack: Stack) -> None:
    """An upgrade does it like this: a replica is restarted at once, a primary after it has handed over."""
    with load_of(stack) as load:
        wait_for_more(load, DISKLESS, 200)
        for primary, replica in zip(cluster.servers[:PRIMARIES], cluster.servers[PRIMARIES:], strict=True):
            cluster.restart(replica)
            wait_for_more(load, DISKLESS, 100)
            cluster.hand_over(replica)
            wait_for_more(load, DISKLESS, 100)
            cluster.restart(primary)
            wait_for_more(load, DISKLESS, 100)
            wait_for_more(load, CLASSIC)
        assert set(cluster.running_primaries()) == set(cluster.servers[PRIMARIES:])
        tally = load.stop()
    assert_right(tally)
