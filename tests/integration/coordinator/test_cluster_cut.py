"""A primary that is cut off from all other servers of its cluster, while proxies still reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import toxiproxy

from proxy import config
from proxy.coordinator.cluster import Cluster
from proxy.coordinator.connect import connect
from proxy.coordinator.shards import partition_key, shard_of
from tests.integration.coordinator.clusters import StoreCluster, slot_of
from tests.integration.coordinator.contract import TOPIC
from tests.integration.coordinator.stores import Store
from tests.integration.coordinator.test_cluster_faults import (
    LOGS,
    SHARDS,
    Commits,
    commit,
    coordinator_of,
    each_offset_is_there_once,
)
from tests.support.memory_journal import MemoryJournal
from tests.support.toxiproxy import closed_link, toxiproxy_server

NO_PACKET, ALL_PACKETS = -1, -2
"""Packets of other servers that a server drops."""

Links = Mapping[Store, toxiproxy.Proxy]


class Bus:
    """Connects the servers of a cluster to each other, through toxiproxy."""

    def __init__(self, cluster: StoreCluster, server: toxiproxy.Toxiproxy) -> None:
        self._cluster = cluster
        self._links, self._further_links = (
            {one: closed_link(server, f"{name}-{one.port}", f"127.0.0.1:{one.bus_port}") for one in cluster.servers}
            for name in ("bus", "further-bus")
        )
        self._open(self._links, cluster.servers)

    @contextmanager
    def without(self, cut_off: Store) -> Iterator[None]:
        """Cut off a server in both directions, its replica's copy of its writes included, during the context.

        All others move to further links, of which it does not hear, before the links end that it knows.
        """
        call, others = self._cluster.call, [one for one in self._cluster.servers if one is not cut_off]
        replica = self._cluster.replica_of(cut_off)
        call(replica, "CONFIG", "SET", "masterauth", "none that is known")
        call(cut_off, "CLIENT", "KILL", "TYPE", "replica")
        call(cut_off, "DEBUG", "DROP-CLUSTER-PACKET-FILTER", ALL_PACKETS)
        self._open(self._further_links, others)
        for link in self._links.values():
            link.disable()
        call(cut_off, "DEBUG", "DROP-CLUSTER-PACKET-FILTER", NO_PACKET)
        yield
        for link in self._links.values():
            link.enable()
        call(replica, "CONFIG", "SET", "masterauth", "")

    def _open(self, links: Links, servers: Sequence[Store]) -> None:
        ports = {one: links[one].listen.rpartition(":")[2] for one in servers}
        for one, port in ports.items():
            links[one].enable()
            self._cluster.call(one, "CONFIG", "SET", "cluster-announce-bus-port", port)

        def have_heard() -> bool:
            known = [self._cluster.call(one, "CLUSTER", "NODES").decode() for one in servers]
            return all(f":{one.port}@{port} " in text for text in known for one, port in ports.items())

        self._cluster.wait(have_heard, "not all servers have heard of the others' ports")


@pytest.fixture
def bus(with_replicas: StoreCluster, tmp_path: Path) -> Iterator[Bus]:
    with toxiproxy_server(tmp_path) as server:
        yield Bus(with_replicas, server)


@pytest.mark.timeout(180)
async def test_commits_of_a_primary_that_the_others_have_replaced_are_in_the_journal(
    with_replicas: StoreCluster, bus: Bus
) -> None:
    """It takes commits until it notices that it is alone, and the replica that takes over has none of them."""
    cluster = with_replicas
    settings = config.Redis(url=cluster.url, shards=SHARDS, settle_ms=0, timeout_ms=1_000)
    client = await connect(settings)
    assert isinstance(client, Cluster)
    coordinator = coordinator_of(client, settings, MemoryJournal())
    await coordinator.create_logs(TOPIC, LOGS)
    alone = cluster.owner(slot_of(shard_of(partition_key(TOPIC, LOGS[0]), SHARDS)))
    replica = cluster.replica_of(alone)
    commits = Commits(coordinator)
    cut = ExitStack()
    await asyncio.to_thread(cut.enter_context, bus.without(alone))
    lost = await commit(coordinator, LOGS[0])
    assert cluster.role(replica) == "slave"
    assert cluster.written(replica) < cluster.written(alone)
    await asyncio.to_thread(cluster.wait, lambda: cluster.role(replica) == "master", "the replica does not take over")
    meanwhile = [await commit(coordinator, partition) for partition in LOGS]
    await asyncio.to_thread(cut.close)
    await asyncio.to_thread(
        cluster.wait, lambda: cluster.role(alone) == "slave", "it does not hear that it is replaced"
    )
    last = [await commit(coordinator, partition) for partition in LOGS]
    offsets = await commits.end()
    offsets[0].append(lost)
    await each_offset_is_there_once(coordinator, offsets, meanwhile, last)
    await client.aclose()
