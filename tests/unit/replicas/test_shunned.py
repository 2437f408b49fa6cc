"""Replicas are shunned for a time, brokers until they recover, and the number of entries is bounded."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.replicas.shunned import Shunned

SHUN_S = 5
MAX_REPLICAS = 4
brokers, topics, partitions = st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(0, 1)


def test_a_rejected_topic_is_logged_once_and_expires():
    now_s = 0
    shunned = Shunned(lambda: now_s, shun_s=SHUN_S, max_replicas=MAX_REPLICAS)
    assert not shunned.is_refused("a")
    assert shunned.refuse("a", 10)
    assert not shunned.refuse("a", 10)
    assert shunned.is_refused("a")
    assert not shunned.is_refused("b")
    now_s = 10
    assert not shunned.is_refused("a")
    assert not shunned.refuse("a", 10)
    for number in range(MAX_REPLICAS):
        assert shunned.refuse(str(number), 10)
    assert not shunned.is_refused("a")
    assert shunned.is_refused("0")


def test_a_replica_whose_reads_stay_slow_is_asked_ever_more_rarely():
    now_s = 0.0
    shunned = Shunned(lambda: now_s, shun_s=SHUN_S, max_replicas=MAX_REPLICAS)
    times = []
    for _ in range(7):
        shunned.shun(1, "a", 0, slow=True)
        began_s = now_s
        while shunned.of("a", 0):
            now_s += 1.0
        times.append(now_s - began_s)
    assert times == [5, 10, 20, 40, 60, 60, 60]
    shunned.shun(1, "a", 1, slow=True)
    shunned.shun(2, "a", 0)
    now_s += SHUN_S
    assert not shunned.of("a", 0) | shunned.of("a", 1), "each replica by itself, and other failures count no further"
    now_s += 60.0
    shunned.shun(1, "a", 0, slow=True)
    now_s += SHUN_S
    assert not shunned.of("a", 0), "it was well in between"


def test_a_replica_stays_shunned_however_often_another_one_is_shunned_again():
    shunned = Shunned(lambda: 0, shun_s=SHUN_S, max_replicas=MAX_REPLICAS)
    shunned.shun(1, "a", 0)
    shunned.shun(1, "b", 0)
    for _ in range(10 * MAX_REPLICAS):
        shunned.shun(1, "a", 0)
        assert shunned.of("b", 0) == {1}


class ShunnedModel(RuleBasedStateMachine):
    """Compare with lists of shunned replicas and their times."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0
        self.shunned = Shunned(lambda: self.now_s, shun_s=SHUN_S, max_replicas=MAX_REPLICAS)
        self.replicas: list[tuple[int, str, int, int]] = []
        self.brokers: set[int] = set()
        self.seen: tuple[object, int] = (self.all(), self.shunned.version)

    def all(self) -> object:
        return {(topic, partition): self.shunned.of(topic, partition) for topic in "ab" for partition in (0, 1)}

    @rule(broker=brokers, topic=topics, partition=partitions)
    def shun(self, broker, topic, partition):
        self.shunned.shun(broker, topic, partition)
        self.replicas = [one for one in self.replicas if one[:3] != (broker, topic, partition) and one[3] > self.now_s]
        self.replicas = [*self.replicas, (broker, topic, partition, self.now_s + SHUN_S)][-MAX_REPLICAS:]

    @rule(broker=brokers)
    def shun_broker(self, broker):
        self.shunned.shun_broker(broker)
        self.brokers.add(broker)

    @rule(broker=brokers)
    def forgive(self, broker):
        self.shunned.forgive(broker)
        self.brokers.discard(broker)

    @rule(seconds=st.integers(1, SHUN_S))
    def time_passes(self, seconds):
        self.now_s += seconds

    @invariant()
    def is_as_the_model_says(self):
        for (topic, partition), shunned in self.all().items():
            of_partition = {one[0] for one in self.replicas if one[1:3] == (topic, partition) and one[3] > self.now_s}
            assert shunned == of_partition | self.brokers
        assert self.shunned.brokers == self.brokers

    @invariant()
    def whatever_changes_has_another_version(self):
        now = self.all(), self.shunned.version
        assert now[0] == self.seen[0] or now[1] != self.seen[1]
        self.seen = now


TestShunned = ShunnedModel.TestCase
