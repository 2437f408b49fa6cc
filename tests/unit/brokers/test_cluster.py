"""The proxy's knowledge of the brokers."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.brokers import cluster as module
from proxy.brokers.cluster import Cluster
from proxy.config import Settings
from proxy.wire.metadata import Broker


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    values: dict[str, Any] = {
        "brokers": {"bootstrap": ("localhost:9092",)},
        "redis": {"url": "redis://localhost"},
        "storage": {"url": "file:///tmp/x"},
    }
    monkeypatch.setattr(module, "_MAX_RACKS_SEEN", 3)
    return Cluster(Settings(rack="a", **values))


def learn(cluster: Cluster, **racks: str | None) -> None:
    cluster.learn([Broker(int(node[1:]), "localhost", 9092, rack) for node, rack in racks.items()])


async def test_the_racks_of_brokers_that_are_down_are_remembered(cluster: Cluster) -> None:
    learn(cluster, n1="a", n2="b", n3=None)
    learn(cluster, n2="b")
    assert cluster.racks_seen == {1: "a", 2: "b"}
    learn(cluster, n2=None, n4="d")
    assert cluster.racks_seen == {1: "a", 4: "d"}
    learn(cluster, n5="e", n6="f")
    assert cluster.racks_seen == {4: "d", 5: "e", 6: "f"}
    cluster.service.close()


async def test_bytes_of_a_broker_that_is_down_are_counted_under_its_rack(cluster: Cluster) -> None:
    """A broker that hangs disappears from Metadata long before its clients' connections end."""
    learn(cluster, n1="a", n2="b")
    learn(cluster, n1="a")
    assert [cluster.rack_of(node) for node in (1, 2, 3, None)] == ["a", "b", "", ""]
    cluster.service.close()


async def test_a_broker_in_another_rack_is_asked_first_for_in_sync_replicas(cluster: Cluster) -> None:
    """A broker that is cut off from the others still considers itself in sync."""
    cluster.learn([Broker(node, f"b{node}", 9092, rack) for node, rack in enumerate("caab")])
    near, far = (cluster.connection_to_any(1.0, near_first=first)._addresses() for first in (True, False))
    assert [host for host, _ in near] == ["b1", "b2", "b0", "b3", "localhost"]
    assert [host for host, _ in far] == ["b0", "b3", "b1", "b2", "localhost"]
    cluster.service.close()
