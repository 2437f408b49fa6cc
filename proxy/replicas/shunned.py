"""Replicas that are not to be asked for a while: a partition's, a topic's, all of a broker that does not answer."""

from __future__ import annotations

from collections.abc import Callable

from proxy.replicas.choice import NOBODY

_MAX_SHUNNED = 10_000
"""Replicas of single partitions; the one that was shunned first is forgotten."""


class Shunned:
    """Who is shunned, and until when. `now` tells monotonic seconds."""

    def __init__(self, now: Callable[[], float], *, shun_s: float, max_replicas: int = _MAX_SHUNNED) -> None:
        self._now = now
        self.shun_s = shun_s
        self._max_replicas = max_replicas
        self._until_s: dict[tuple[str, int, int], float] = {}
        """By topic, partition and broker; as all are shunned equally long, the first ends first."""
        self._of_partition: dict[tuple[str, int], frozenset[int]] = {}
        self._brokers: frozenset[int] = NOBODY
        self._refused_until_s: dict[str, float] = {}
        """By topic; also when that time is over, so that nobody hears of it twice."""
        self._version = 0

    @property
    def version(self) -> int:
        """Another number whenever anybody is shunned, or no longer: for who remembers what followed from it."""
        if self._until_s:
            self._forgive_old()
        return self._version

    @property
    def brokers(self) -> frozenset[int]:
        """Brokers that are shunned for all partitions."""
        return self._brokers

    def of(self, topic: str, partition: int) -> frozenset[int]:
        """Brokers that are not to be asked for a partition."""
        if not self._until_s:
            return self._brokers
        self._forgive_old()
        replicas = self._of_partition.get((topic, partition))
        return self._brokers if replicas is None else self._brokers | replicas

    def shun(self, broker: int, topic: str, partition: int) -> None:
        """Don't ask a broker for one partition for `fetch.replica_shun_ms`."""
        key = topic, partition, broker
        self._until_s.pop(key, None)
        self._until_s[key] = self._now() + self.shun_s
        self._of_partition[topic, partition] = self._of_partition.get((topic, partition), NOBODY) | {broker}
        if len(self._until_s) > self._max_replicas:
            self._forgive_first()
        self._version += 1

    def refuse(self, topic: str, for_s: float) -> bool:
        """Don't ask anybody for a topic that the proxy may not read, for so many seconds; whether that is news."""
        is_news = self._refused_until_s.pop(topic, None) is None
        self._refused_until_s[topic] = self._now() + for_s
        if len(self._refused_until_s) > self._max_replicas:
            del self._refused_until_s[next(iter(self._refused_until_s))]
        return is_news

    def is_refused(self, topic: str) -> bool:
        """Whether nobody is to be asked for a topic."""
        until_s = self._refused_until_s.get(topic)
        return until_s is not None and self._now() < until_s

    def shun_broker(self, broker: int) -> None:
        """Don't ask a broker for anything until it is forgiven."""
        if broker not in self._brokers:
            self._brokers |= {broker}
            self._version += 1

    def forgive(self, broker: int) -> None:
        """A broker has answered, or is no longer there."""
        if broker in self._brokers:
            self._brokers -= {broker}
            self._version += 1

    def _forgive_old(self) -> None:
        now_s = self._now()
        while self._until_s and self._until_s[next(iter(self._until_s))] <= now_s:
            self._forgive_first()

    def _forgive_first(self) -> None:
        topic, partition, broker = key = next(iter(self._until_s))
        del self._until_s[key]
        left = self._of_partition[topic, partition] - {broker}
        if left:
            self._of_partition[topic, partition] = left
        else:
            del self._of_partition[topic, partition]
        self._version += 1
