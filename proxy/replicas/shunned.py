"""Replicas that are not to be asked for a while: a partition's, a topic's, all of a broker that does not answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from proxy.process.newest import Newest
from proxy.replicas.choice import NOBODY

_MAX_SHUNNED = 10_000
"""Replicas of single partitions; the one that is to be asked first is forgotten."""
_LONGEST_SLOW_S = 60.0
"""Each slow read of the same replica in a row makes it shunned for twice as long, up to this."""
_Replica = tuple[str, int, int]
"""Topic, partition and broker."""


class Shunned:
    """The shunned replicas, and until when. `now` returns monotonic seconds."""

    def __init__(self, now: Callable[[], float], *, shun_s: float, max_replicas: int = _MAX_SHUNNED) -> None:
        self._now = now
        self.shun_s = shun_s
        self._max_replicas = max_replicas
        self._until_s: dict[_Replica, tuple[float, int]] = {}
        """End of the time, and a number that identifies the entry of `_ends` that counts."""
        self._ends: list[tuple[float, int, _Replica]] = []
        """A heap; entries that no longer count stay until they are the first."""
        self._number = count()
        self._slow: OrderedDict[_Replica, tuple[float, float]] = OrderedDict()
        """How long replicas whose reads were slow were shunned last, and until when."""
        self._of_partition: dict[tuple[str, int], frozenset[int]] = {}
        self._brokers: frozenset[int] = NOBODY
        self._refused_until_s: Newest[str, float] = Newest(max_replicas)
        """End of the time by topic; kept after that time, so that it is reported only once."""
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

    def shun(self, broker: int, topic: str, partition: int, *, slow: bool = False) -> None:
        """Don't ask a broker for one partition for `fetch.replica_shun_ms`; longer, if it was `slow` before."""
        key = topic, partition, broker
        now_s, for_s = self._now(), self.shun_s
        if slow:
            last_s, until_s = self._slow.pop(key, (0.0, 0.0))
            if now_s < until_s + last_s:
                for_s = max(for_s, min(2 * last_s, _LONGEST_SLOW_S))
            self._slow[key] = for_s, now_s + for_s
            if len(self._slow) > self._max_replicas:
                self._slow.popitem(last=False)
        self._until_s[key] = ends = now_s + for_s, next(self._number)
        heappush(self._ends, (*ends, key))
        self._of_partition[topic, partition] = self._of_partition.get((topic, partition), NOBODY) | {broker}
        while len(self._until_s) > self._max_replicas:
            self._forgive_first()
        if len(self._ends) > 2 * self._max_replicas:
            self._ends = [(*ends, replica) for replica, ends in self._until_s.items()]
            heapify(self._ends)
        self._version += 1

    def refuse(self, topic: str, for_s: float) -> bool:
        """Send no request for a topic that the proxy may not read for `for_s` seconds; return whether that is new."""
        is_news = topic not in self._refused_until_s
        self._refused_until_s.note(topic, self._now() + for_s)
        return is_news

    def is_refused(self, topic: str) -> bool:
        """Return whether no request may be sent for a topic."""
        until_s = self._refused_until_s.get(topic)
        return until_s is not None and self._now() < until_s

    def shun_broker(self, broker: int) -> None:
        """Don't ask a broker for anything until it is forgiven."""
        if broker not in self._brokers:
            self._brokers |= {broker}
            self._version += 1

    def forgive(self, broker: int) -> None:
        """Stop shunning a broker that has answered, or no longer exists."""
        if broker in self._brokers:
            self._brokers -= {broker}
            self._version += 1

    def _forgive_old(self) -> None:
        now_s = self._now()
        while self._ends and self._ends[0][0] <= now_s:
            self._forgive_first()

    def _forgive_first(self) -> None:
        until_s, number, key = heappop(self._ends)
        if self._until_s.get(key) != (until_s, number):
            return  # shunned again since
        topic, partition, broker = key
        del self._until_s[key]
        left = self._of_partition[topic, partition] - {broker}
        if left:
            self._of_partition[topic, partition] = left
        else:
            del self._of_partition[topic, partition]
        self._version += 1
