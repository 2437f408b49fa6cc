"""Names for topics that were counted by ID, from what is known of the brokers' topics."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from proxy.stats import UNKNOWN_TOPIC, Stats
from proxy.topic_names import TopicNames

ORDERS, GONE = b"o" * 16, b"g" * 16


class Replicas:
    """Knows what it is asked for, of those that there are."""

    def __init__(self, there: dict[bytes, str]) -> None:
        self.there = there
        self.known: dict[bytes, str] = {}
        self.asked: list[bytes] = []

    async def know(self, topics: Iterable[bytes]) -> None:
        topics = list(topics)
        self.asked += topics
        self.known |= {topic: self.there[topic] for topic in topics if topic in self.there}

    def topic(self, topic: bytes) -> Any:
        return SimpleNamespace(name=self.known[topic]) if topic in self.known else None


def counted(*topics: bytes) -> Stats:
    stats = Stats()
    for topic in topics:
        stats.count_records("classic", "produce", "rack-a", "rack-b", topic, 1)
    return stats


async def test_a_topic_is_named_once_and_not_asked_for_again() -> None:
    stats, replicas = counted(ORDERS), Replicas({ORDERS: "orders"})
    names = TopicNames(stats, replicas, lambda: 0.0)  # type: ignore[arg-type]
    await names.name()
    await names.name()
    assert stats.topic_names == {ORDERS: "orders"}
    assert not stats.unnamed_topics
    assert replicas.asked == [ORDERS]


async def test_one_that_nobody_knows_is_given_up_after_a_while() -> None:
    stats, replicas, now_s = counted(ORDERS, GONE), Replicas({}), 0.0
    names = TopicNames(stats, replicas, lambda: now_s)  # type: ignore[arg-type]
    await names.name()
    assert stats.topic_names == {}
    replicas.there = {ORDERS: "orders"}
    now_s = 299.0
    await names.name()
    assert stats.topic_names == {ORDERS: "orders"}
    now_s = 300.0
    await names.name()
    assert stats.topic_names == {ORDERS: "orders", GONE: UNKNOWN_TOPIC}
    assert not stats.unnamed_topics
