"""The brokers of the proxy's rack, alive and down, and the foreign listeners."""

from __future__ import annotations

from typing import Any

from proxy.brokers.cluster import Cluster
from proxy.config import Settings
from proxy.replicas.near import NearBrokers
from proxy.wire.metadata import Broker

BASE: dict[str, Any] = {
    "brokers": {"bootstrap": ["localhost:9092"]},
    "redis": {"url": "redis://localhost"},
    "storage": {"url": "file:///tmp/x"},
}


class Seen:
    """The near ones of brokers that a test changes."""

    def __init__(self, **racks: str | None) -> None:
        self.cluster = Cluster(Settings(rack="rack-a", **BASE))
        self.live(**racks)
        self.near = NearBrokers("rack-a", self.cluster)

    def live(self, **racks: str | None) -> None:
        nodes = {int(name.removeprefix("n")): rack for name, rack in racks.items()}
        self.cluster.learn([Broker(node, "broker", 9092, rack) for node, rack in nodes.items()])


def test_the_brokers_of_the_rack_are_near_and_the_others_listeners_foreign():
    near = Seen(n1="rack-a", n2="rack-b", n3="rack-a", n4=None).near
    assert near.now() == (frozenset({1, 3}), frozenset())
    assert [node for node in (None, 1, 2, 3, 4, 5) if near.is_foreign(node)] == [2]


def test_one_that_is_down_is_known_as_long_as_it_has_no_other_rack():
    seen = Seen(n1="rack-a", n2="rack-b", n3="rack-a")
    assert not seen.near.now().down
    seen.live(n1="rack-a")
    assert seen.near.now() == (frozenset({1}), frozenset({3}))
    assert seen.near.is_foreign(2)
    seen.live(n1="rack-a", n2=None, n3="rack-b")
    assert seen.near.now() == (frozenset({1}), frozenset())
    assert [node for node in (1, 2, 3) if seen.near.is_foreign(node)] == [3]


def test_the_answer_is_the_same_object_until_it_changes():
    seen = Seen(n1="rack-a", n2="rack-b")
    first = seen.near.now()
    assert seen.near.now() is first
    seen.live(n1="rack-a", n2="rack-c")
    assert seen.near.now() is first
    seen.live(n1="rack-a", n2="rack-a")
    assert seen.near.now() is not first
