"""The content of a Fetch, as its client sent it."""

from __future__ import annotations

from proxy.fetching.asked import each_once, keys_of, only
from proxy.wire.fetch import PartitionFetch, TopicFetch


def asked(name: str, *partitions: tuple[int, int]) -> TopicFetch:
    """`partitions`: (index, offset)."""
    return TopicFetch(name, [PartitionFetch(index, -1, offset, -1, -1, 1 << 20) for index, offset in partitions])


def test_a_repeated_partition_keeps_its_first_place_and_its_last_values():
    topics = [asked("a", (0, 1), (1, 2), (0, 3)), asked("b", (0, 4)), asked("a", (1, 5)), asked("a", (2, 6))]
    assert each_once(topics) == [asked("a", (0, 3), (1, 5)), asked("b", (0, 4)), asked("a", (2, 6))]


def test_a_partition_that_is_named_once_stays_unchanged():
    topics = [asked("a", (1, 1), (0, 2)), asked("b", (0, 4))]
    assert each_once(topics) is topics


def test_a_part_keeps_the_order_of_the_whole():
    topics = [asked("a", (3, 1), (0, 2), (1, 3)), asked("b", (0, 4)), asked("c", (5, 5))]
    assert only(topics, {("a", 1), ("a", 3), ("c", 5)}) == [asked("a", (3, 1), (1, 3)), asked("c", (5, 5))]
    assert keys_of(only(topics, {("b", 0)})) == [("b", 0)]
