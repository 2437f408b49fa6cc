"""Groups on the load's topics whose members come and go: some member must read each record."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle

from confluent_kafka import Consumer, TopicPartition

from tests.retention_under_load.books import Problems
from tests.support.worker import Worker

PROTOCOLS = ("classic", "consumer")
MEMBERS = 2
ASK_SECONDS = 60.0
FINISH_SECONDS = 300.0
Place = tuple[str, int]


class Coverage:
    """Offsets of a partition that were read: all up to one offset, and some beyond it."""

    def __init__(self) -> None:
        self.next = 0
        self.beyond: set[int] = set()
        self.again = 0

    def add(self, offset: int) -> None:
        """Note a record that was read."""
        if offset < self.next or offset in self.beyond:
            self.again += 1
            return
        self.beyond.add(offset)
        while self.next in self.beyond:
            self.beyond.discard(self.next)
            self.next += 1


class Group:
    """One group, from its creation to `finish`."""

    def __init__(
        self, protocol: str, bootstraps: Sequence[str], topics: Sequence[str], problems: Problems, seed: int
    ) -> None:
        self.protocol = protocol
        self.name = f"soak-{protocol}-{topics[0]}"
        self.rebalances = 0
        self._topics, self._problems = list(topics), problems
        # Proxies take turns, so that members leave each proxy alone for a while again and again (see
        # `flatness.floors`).
        self._bootstrap = cycle(random.Random(seed).sample(list(bootstraps), len(bootstraps)))
        self._lock = threading.Lock()
        self._covered: defaultdict[Place, Coverage] = defaultdict(Coverage)
        self._members = [_Member(self) for _ in range(MEMBERS)]

    @property
    def records(self) -> int:
        """Return how many different records were read."""
        with self._lock:
            return sum(one.next + len(one.beyond) for one in self._covered.values())

    @property
    def again(self) -> int:
        """Return how many records came again after a rebalance, because their offsets were not committed yet."""
        with self._lock:
            return sum(one.again for one in self._covered.values())

    def renew(self) -> None:
        """Replace the oldest member by a new one."""
        self._members.append(_Member(self))
        self._members.pop(0).finish()

    def finish(self) -> None:
        """Wait until all existing records are read; then stop all members."""
        ends = self._ends()
        deadline = time.monotonic() + FINISH_SECONDS
        while left := self._left(ends):
            if time.monotonic() > deadline:
                missing = ", ".join(f"{topic}-{partition}: {what}" for (topic, partition), what in left.items())
                self._problems.report(f"{self.name} has not read all: {missing}")
                break
            time.sleep(0.2)
        for member in self._members:
            member.finish()

    def settings(self) -> dict[str, object]:
        """Return the settings of a member."""
        return {
            "bootstrap.servers": next(self._bootstrap),
            "group.id": self.name,
            "group.protocol": self.protocol,
            "client.id": f"soak-{self.protocol}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 2_000,
            "check.crcs": True,
            "log_level": 2,
            # only that a broker is away for a moment; important errors come by `consume`
            "error_cb": lambda error: None,
        }

    def subscribe(self, client: Consumer) -> None:
        """Subscribe a new member."""
        client.subscribe(self._topics, on_assign=self._assigned)

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            self.rebalances += 1

    def take(self, client: Consumer) -> None:
        """Take the next records of a member."""
        for message in client.consume(500, 0.5):
            topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
            if error is not None:
                self._problems.report(f"{self.name} got {error.str()}")
                continue
            assert topic is not None
            assert partition is not None
            assert offset is not None
            with self._lock:
                self._covered[topic, partition].add(offset)

    def report(self, text: str) -> None:
        """Report that a member could not go on."""
        self._problems.report(text)

    def _ends(self) -> dict[Place, int]:
        client = Consumer(self.settings() | {"group.id": f"{self.name}-ends"})
        try:
            found = {}
            for topic in self._topics:
                for partition in client.list_topics(topic, ASK_SECONDS).topics[topic].partitions:
                    offsets = client.get_watermark_offsets(TopicPartition(topic, partition), ASK_SECONDS)
                    assert offsets is not None
                    found[topic, partition] = offsets[1]
            return found
        finally:
            client.close()

    def _left(self, ends: dict[Place, int]) -> dict[Place, str]:
        with self._lock:
            return {
                place: f"to {self._covered[place].next} of {end}, {len(self._covered[place].beyond)} beyond"
                for place, end in ends.items()
                if self._covered[place].next < end
            }


class _Member(Worker):
    def __init__(self, group: Group) -> None:
        super().__init__(f"member of {group.name}", group.report)
        self._group = group
        self.start()

    def work(self) -> None:
        client = Consumer(self._group.settings())
        try:
            self._group.subscribe(client)
            while not self.ended.is_set():
                self._group.take(client)
        finally:
            client.close()
