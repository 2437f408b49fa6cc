"""The same transactions in a classic and in a diskless topic: readers get the same answers, field by field.

Each transaction has records in both topics. Answers are compared for every offset, each time up to the end: a proxy may
answer with fewer batches than a broker if reading more of them would take too long.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka.admin import AdminClient

from proxy.config import load_settings
from proxy.coordinator.interface import FindRequest, Row
from proxy.demo.ports import HOST
from proxy.demo.stack import Stack
from proxy.inspection.stores import open_stores
from tests.batches import make_batch
from tests.support.raw import Raw
from tests.support.topics import CLASSIC, DISKLESS, new_topic
from tests.support.transactional import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawProducer,
    end_offset,
    produce_body,
    read_to_end,
    sent_together,
)
from tests.support.waiting import wait_for

NONE = 0
LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
RACK = "rack-b"
STEPS, PRODUCERS = 40, 4


@dataclass
class Pair:
    """A classic and a diskless topic that get the same records, and their producers."""

    near: str
    classic: str
    diskless: str
    topics: dict[str, Raw]
    """Connection to the leader of each topic."""
    producers: list[RawProducer] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    """Places of producers whose transaction has the two topics."""
    end: int = 0
    """High watermark of both topics."""
    _now_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    """Time of all records. A broker would begin a segment if a marker were much newer than the records."""

    def begin_session(self, place: int) -> None:
        """Begin a producer's first session, or a new one, which aborts the transaction of the last one."""
        producer = RawProducer(self.near, f"{self.diskless}-{place}")
        if place < len(self.producers):
            self.producers[place] = producer
            self._wait_for_marker(place)
        else:
            self.producers.append(producer)

    def write(self, counts: dict[int, int]) -> None:
        """Write a batch with this many records of each of these producers, all of them in one segment."""
        for place in counts.keys() - self.open:
            answers = self.producers[place].add_all({topic: [0] for topic in self.topics})
            assert set(answers.values()) == {NONE}, answers
            self.open.add(place)
        for topic, raw in self.topics.items():
            bodies = [
                self.producers[place].body(
                    topic, [b"%d" % number for number in range(count)], timestamp_ms=self._now_ms
                )
                for place, count in counts.items()
            ]
            assert sent_together(raw, bodies) == [NONE] * len(bodies)
            for place, count in counts.items():
                self.producers[place].took(topic, 0, count)
        self.end += sum(counts.values())

    def write_plain(self) -> None:
        """Write a record that belongs to no transaction."""
        batch = bytes(make_batch([b"plain"], timestamp_ms=self._now_ms))
        for topic, raw in self.topics.items():
            assert sent_together(raw, [produce_body(topic, batch)]) == [NONE]
        self.end += 1

    def finish(self, place: int, *, commit: bool) -> None:
        """End a producer's transaction."""
        assert self.producers[place].end(commit=commit) == NONE
        self._wait_for_marker(place)

    def _wait_for_marker(self, place: int) -> None:
        """Wait for the marker in both topics, so that the next step comes after it: EndTxn is answered before that."""
        self.open.discard(place)
        self.end += 1
        for topic, raw in self.topics.items():
            wait_for(lambda r=raw, t=topic: end_offset(r, t, READ_UNCOMMITTED) == self.end, "the marker")

    def compare(self) -> None:
        """Compare the answers for all offsets in both isolation levels."""
        for isolation in LEVELS:
            ends = {end_offset(raw, topic, isolation) for topic, raw in self.topics.items()}
            assert len(ends) == 1, ends
            for offset in range(self.end + 1):
                expected, found = (read_to_end(raw, topic, offset, isolation) for topic, raw in self.topics.items())
                assert replace(found, answers=expected.answers) == expected, (isolation, offset)


@pytest.fixture
def pair(stack: Stack) -> Iterator[Pair]:
    classic, diskless = (new_topic(stack, "compared", kind) for kind in (CLASSIC, DISKLESS))
    known = AdminClient({"bootstrap.servers": stack.direct_bootstrap})

    def leader() -> int:
        topic = known.list_topics(classic, timeout=30).topics[classic]
        return topic.partitions[0].leader if topic.partitions else -1

    wait_for(lambda: leader() >= 0, "a leader")
    near = stack.bootstrap(RACK)
    with Raw(f"{HOST}:{stack.ports.broker(leader())}") as at_broker, Raw(near) as at_proxy:
        yield Pair(near, classic, diskless, {classic: at_broker, diskless: at_proxy})


@pytest.mark.parametrize("seed", [1, 2])
def test_random_histories_read_as_in_a_classic_topic(pair: Pair, seed: int) -> None:
    """Transactions that overlap, commits, aborts, fenced sessions, plain batches."""
    chance = random.Random(seed)
    for place in range(PRODUCERS):
        pair.begin_session(place)
    for _ in range(STEPS):
        place, kind = chance.randrange(PRODUCERS), chance.random()
        if kind < 0.1:
            pair.write_plain()
        elif kind < 0.15 and place in pair.open:
            pair.begin_session(place)
        elif kind < 0.4 and place in pair.open:
            pair.finish(place, commit=chance.random() < 0.5)
        else:
            places = chance.sample(range(PRODUCERS), chance.choice((1, 1, 2, 3)))
            pair.write({one: chance.randint(1, 3) for one in places})
    pair.compare()
    for place in sorted(pair.open):
        pair.finish(place, commit=place % 2 == 0)
    pair.compare()


def test_the_last_stable_offset_lies_within_a_row(stack: Stack, pair: Pair) -> None:
    for place in range(3):
        pair.begin_session(place)
        pair.write({place: 1})  # the proxy learns the client's rights, which takes time
        pair.finish(place, commit=True)
    pair.write({0: 2, 1: 3, 2: 1})
    row = asyncio.run(rows(stack, pair.diskless))[-1]
    assert (row.base_offset, row.last_offset) == (6, 11)
    for place, stable in ((0, 8), (2, 8), (1, 15)):
        pair.finish(place, commit=place != 2)
        assert end_offset(pair.near, pair.diskless, READ_COMMITTED) == stable
        pair.compare()


def test_an_abort_spans_segments(stack: Stack, pair: Pair) -> None:
    for place in range(2):
        pair.begin_session(place)
    for _ in range(3):
        pair.write({0: 2})
        pair.write({1: 1})
    assert len(asyncio.run(rows(stack, pair.diskless))) == 6
    pair.finish(0, commit=False)
    pair.compare()
    pair.finish(1, commit=True)
    pair.compare()


async def rows(stack: Stack, topic: str) -> tuple[Row, ...]:
    """Return the rows of partition 0 as the coordinator has them."""
    async with open_stores(load_settings(stack.config_path(RACK))) as stores:
        (entry,) = stores.named([topic])
        (answer,) = await stores.coordinator.find([FindRequest(entry.topic_id, 0, 0, 1 << 40)])
        return answer.rows
