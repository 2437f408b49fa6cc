"""Long polls at a foreign listener: `min_bytes` and `max_wait` hold, and new records wake the reader from any
source."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from proxy.demo.stack import Stack
from tests.integration.routed_fetch.conftest import BATCH, FAR_REPLICAS, RECORDS, REPLICAS, SIZE
from tests.support.questions import ask
from tests.support.routed import (
    HIGHEST_VERSION,
    LEADER,
    ON_A_REPLICA,
    RACK,
    Asked,
    Served,
    Twins,
    fetch,
    listener,
    partitions,
    produce,
    records_of,
    requests,
    settle,
    topic_id,
    warm_up,
)
from tests.support.topics import CLASSIC, DISKLESS, create_topic
from tests.support.waiting import wait_for

VERSIONS = (4, ON_A_REPLICA, HIGHEST_VERSION)
LONG_MS, SHORT_MS = 60_000, 300
ENDS_BEFORE_S = 20.0
"""Time well before a long wait ends, on any machine."""
NEAR_TOPIC, FAR_TOPIC, DISKLESS_TOPIC = "near", "far", "diskless"
ALL = (DISKLESS_TOPIC, FAR_TOPIC, NEAR_TOPIC)
MIXES = [
    pytest.param(kinds, version, id=f"{'+'.join(kinds)}-{version}")
    for kinds, version in (
        ((NEAR_TOPIC,), VERSIONS[0]),
        ((NEAR_TOPIC, FAR_TOPIC), VERSIONS[1]),
        ((NEAR_TOPIC, DISKLESS_TOPIC), VERSIONS[2]),
        *((ALL, version) for version in VERSIONS),
    )
]


class Waiting(NamedTuple):
    """A topic of each kind, with the ends of their only partitions."""

    stack: Stack
    names: dict[str, str]
    ids: dict[str, bytes]
    ends: dict[str, int]

    def asked(self, kinds: tuple[str, ...], **values: int) -> list[Asked]:
        """Return a request for the next record of each kind."""
        return [Asked(self.names[kind], 0, self.ends[kind], **values) for kind in kinds]

    def write(self, kind: str) -> None:
        """Write a batch with a producer of the leader's rack."""
        name = self.names[kind]
        if kind == DISKLESS_TOPIC:
            produce_diskless(self.stack, name)
        else:
            produce(self.stack, name, 0, BATCH)
        self.ends[kind] += RECORDS


def produce_diskless(stack: Stack, name: str) -> None:
    """Write a batch at the proxy of another rack."""
    data = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]}]
    address = listener(stack, LEADER, "rack-b")
    answer = ask(address, 0, 9, acks=-1, timeout=30_000, topic_data=data)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> Waiting:
    unique = uuid.uuid4().hex[:6]
    names = {kind: f"waits-{kind}-{unique}" for kind in (NEAR_TOPIC, FAR_TOPIC, DISKLESS_TOPIC)}
    create_topic(running_stack, names[NEAR_TOPIC], CLASSIC, assignment=[REPLICAS])
    create_topic(running_stack, names[FAR_TOPIC], CLASSIC, assignment=[FAR_REPLICAS])
    create_topic(running_stack, names[DISKLESS_TOPIC], DISKLESS, assignment=[REPLICAS])
    ids = {name: topic_id(running_stack, name) for name in names.values()}
    made = Waiting(running_stack, names, ids, dict.fromkeys(names, 0))

    def served() -> bool:
        asked = made.asked(ALL)
        answer = fetch(listener(running_stack, LEADER, RACK), ON_A_REPLICA, asked, ids)
        return not any(one["error_code"] for one in partitions(answer))

    wait_for(served, "the new topics are served")
    for kind in names:
        made.write(kind)
    near = Asked(names[NEAR_TOPIC], 0, 0)
    settle(running_stack, ids, near)
    warm_up(running_stack, ids, near)
    return made


@pytest.fixture
def twins(stack: Stack, topics: Waiting) -> Iterator[Twins]:
    with Twins(stack, topics.ids) as twins:
        yield twins


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def wait_until_asked(stack: Stack, before: float) -> None:
    """Wait until the proxy has the request that another thread sends."""
    wait_for(lambda: requests(stack) > before, "the Fetch has come")


@pytest.mark.parametrize(("kinds", "version"), MIXES)
def test_news_of_any_source_wakes_the_reader(
    stack: Stack, topics: Waiting, twins: Twins, threads: ThreadPoolExecutor, kinds: tuple[str, ...], version: int
) -> None:
    for place, kind in enumerate(kinds):
        before = requests(stack)
        reading = threads.submit(twins.routed, version, *topics.asked(kinds), max_wait=LONG_MS)
        wait_until_asked(stack, before)
        topics.write(kind)
        got = [len(records) for records in records_of(in_request_order(reading.result(ENDS_BEFORE_S), topics, kinds))]
        assert got == [SIZE if at == place else 0 for at in range(len(kinds))]


@pytest.mark.parametrize(("kinds", "version"), MIXES)
def test_the_reader_waits_for_as_many_bytes_as_it_wants(
    stack: Stack, topics: Waiting, twins: Twins, threads: ThreadPoolExecutor, kinds: tuple[str, ...], version: int
) -> None:
    """The limit counts over all sources together, and the wait ends as soon as it is reached."""
    wanted = {"min_bytes": SIZE * (len(kinds) + 1), "max_wait": LONG_MS}
    before = requests(stack)
    reading = threads.submit(twins.routed, version, *topics.asked(kinds), **wanted)
    wait_until_asked(stack, before)
    for kind in kinds:
        assert not reading.done()
        topics.write(kind)
    assert not reading.done()
    topics.write(kinds[0])
    sizes = [len(records) for records in records_of(in_request_order(reading.result(ENDS_BEFORE_S), topics, kinds))]
    assert sizes == [2 * SIZE, *[SIZE] * (len(kinds) - 1)]


@pytest.mark.parametrize(("kinds", "version"), MIXES)
def test_available_records_are_returned_when_time_is_up(
    topics: Waiting, twins: Twins, kinds: tuple[str, ...], version: int
) -> None:
    asked = [one._replace(offset=one.offset - RECORDS) for one in topics.asked(kinds)]
    for wanted in ({"min_bytes": 1 << 20, "max_wait": SHORT_MS}, {"min_bytes": 1, "max_wait": LONG_MS}):
        answer = in_request_order(twins.routed(version, *asked, **wanted), topics, kinds)
        assert [len(records) for records in records_of(answer)] == [SIZE] * len(kinds)


def in_request_order(answer: Any, topics: Waiting, kinds: tuple[str, ...]) -> Any:
    """Return the answer, whose topics must be in the order of the request."""
    found = [topic.get("topic") or topic["topic_id"] for topic in answer["responses"]]
    names = [topics.names[kind] for kind in kinds]
    assert found in (names, [topics.ids[name] for name in names])
    return answer


@pytest.mark.parametrize(("kinds", "version"), MIXES[1:])
def test_each_source_of_a_mixed_fetch_answers_as_if_alone(
    stack: Stack, topics: Waiting, twins: Twins, kinds: tuple[str, ...], version: int
) -> None:
    """All of it is requested at once and compared field by field; an error of one source affects no other."""
    served = Served.begin(stack)
    for shift in (0, RECORDS, topics.ends[kinds[0]] + 1000):
        asked = [one._replace(offset=max(0, one.offset - RECORDS)) for one in topics.asked(kinds)]
        asked[0] = asked[0]._replace(offset=asked[0].offset + shift)
        alone = [twins.routed(version, one) for one in asked]
        mixed = twins.routed(version, *asked)
        assert isinstance(mixed, dict)
        assert mixed["responses"] == [topic for one in alone if isinstance(one, dict) for topic in one["responses"]]
    assert served.record_bytes()[RACK] > 0
