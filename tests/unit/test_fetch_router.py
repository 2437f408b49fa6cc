"""What a Fetch asks of diskless topics, as its client put it."""

from __future__ import annotations

from proxy.coordinator.interface import DisklessTopic
from proxy.fetch_router import _Diskless, _each_once
from proxy.wire.fetch import PartitionFetch, TopicFetch


def diskless(name: str, *partitions: tuple[int, int]) -> _Diskless:
    """`partitions`: (index, offset)."""
    asked = [PartitionFetch(index, -1, offset, -1, -1, 1 << 20) for index, offset in partitions]
    return _Diskless(TopicFetch(name, asked), DisklessTopic(name, name.encode() * 16, 4, "live"))


def test_what_is_named_twice_is_read_once_where_it_is_named_first_as_it_is_named_last():
    asked = [diskless("a", (0, 1), (1, 2), (0, 3)), diskless("b", (0, 4)), diskless("a", (1, 5)), diskless("a", (2, 6))]
    assert _each_once(asked) == [diskless("a", (0, 3), (1, 5)), diskless("b", (0, 4)), diskless("a", (2, 6))]


def test_what_is_named_once_stays_as_it_is():
    asked = [diskless("a", (1, 1), (0, 2)), diskless("b", (0, 4))]
    assert _each_once(asked) is asked
