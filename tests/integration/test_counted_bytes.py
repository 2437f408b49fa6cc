"""Record bytes by topic are the bytes that clients moved, in every form of Produce and Fetch, and cross if they do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.metrics import Metrics
from tests.support.questions import ask
from tests.support.raw import Raw
from tests.support.routed import (
    FIRST_ID_VERSION,
    LEADER,
    NEAR,
    PRODUCE,
    RACK,
    RACK_OF_LEADER,
    Asked,
    fetch,
    listener,
    records_of,
    settle,
    topic_id,
)
from tests.support.topics import CLASSIC, DISKLESS, create_topic, delete_topic, offsets
from tests.support.waiting import wait_for

CLIENT_ID = "counted"
"""Client ID of this test only: proxies cache the rack that a client of another name reported."""
PRODUCED = ((3, 300), (7, 700), (9, 900), (12, 1_200), (13, 1_300), (7, 200_000), (13, 200_000))
"""Versions, and bytes of each record. The last requests come in pieces, and stream if their topic is classic."""
FETCH_VERSIONS = (4, 7, 11, 12, 13, 17)

Topics = dict[str, tuple[str, int]]
"""Kind and listener's broker, by topic name."""


@pytest.fixture
def topics() -> Topics:
    """Create the near, the far and the diskless topic, with new names, because counts of a name stay."""
    labels = {"near": (CLASSIC, NEAR), "far": (CLASSIC, LEADER), "diskless": (DISKLESS, LEADER)}
    return {f"counted-{label}-{uuid.uuid4().hex[:6]}": asked for label, asked in labels.items()}


@pytest.fixture
def ids(stack: Stack, topics: Topics) -> Iterator[dict[str, bytes]]:
    """Return the topics' IDs, once both partitions have leaders that know the topic."""
    for topic, (kind, node) in topics.items():
        replicas = sorted(stack.kafka.racks, key=lambda one: one != node)
        create_topic(stack, topic, kind, assignment=[replicas, replicas] if kind == CLASSIC else None, partitions=2)
    for topic in topics:
        offsets(stack, topic)
        offsets(stack, topic, 1)
    yield {topic: topic_id(stack, topic) for topic in topics}
    for topic in topics:
        delete_topic(stack, topic)


def test_bytes_by_topic_are_what_clients_moved(stack: Stack, topics: Topics, ids: dict[str, bytes]) -> None:
    before = Metrics(stack, RACK)
    produced, fetched = {}, {}
    for topic, (kind, node) in topics.items():
        with Raw(listener(stack, node, RACK)) as connection:
            produced[topic] = produce(connection, topic, ids)
            asked = Asked(topic, 0, 0), Asked(topic, 1, 0)
            if kind == CLASSIC:
                settle(stack, ids, *asked)
            fetched[topic] = read(connection, ids, asked)
        assert fetched[topic] == len(FETCH_VERSIONS) * produced[topic]

    def more(name: str, **labels: str) -> float:
        return Metrics(stack, RACK).value(name, **labels) - before.value(name, **labels)

    for topic, (kind, _) in topics.items():
        for direction, moved in (("produce", produced[topic]), ("fetch", fetched[topic])):
            labels = {"kind": kind, "direction": direction, "topic": topic}
            # Names of topics that clients gave by ID come a little later.
            wait_for(
                lambda labels=labels, moved=moved: more("topic_record_bytes_total", **labels) >= moved,  # type: ignore[misc]
                f"{moved} bytes are counted: {labels}",
            )
            assert more("topic_record_bytes_total", **labels) == moved, labels
    for kind in (CLASSIC, DISKLESS):
        for direction, by_topic in (("produce", produced), ("fetch", fetched)):
            moved = sum(size for topic, size in by_topic.items() if topics[topic][0] == kind)
            assert more("record_bytes_total", kind=kind, direction=direction, client_rack=RACK) == moved

    _, far_topic, _ = topics
    far = {"kind": CLASSIC, "topic": far_topic}
    assert more("topic_cross_rack_bytes_total", direction="produce", **far) == produced[far_topic]
    from_leader = more("leader_read_bytes_total")
    assert more("topic_cross_rack_bytes_total", direction="fetch", **far) == from_leader
    assert more("near_read_bytes_total", serving_rack=RACK) == fetched[far_topic] - from_leader
    assert more("near_read_bytes_total") > 0
    crossed = {"client_rack": RACK, "serving_rack": RACK_OF_LEADER}
    assert more("cross_rack_bytes_total", direction="produce", **crossed) == produced[far_topic]
    assert more("cross_rack_bytes_total") == produced[far_topic] + from_leader
    assert more("cross_rack_cost_usd_total") == pytest.approx(more("cross_rack_bytes_total") * 0.02 / 1e9)
    assert more("near_read_saved_usd_total") == pytest.approx(more("near_read_bytes_total") * 0.02 / 1e9)


def produce(connection: Raw, topic: str, ids: dict[str, bytes]) -> int:
    """Produce to both partitions in every form; return the number of record bytes."""
    moved = 0
    for version, size in PRODUCED:
        batches = [bytes(make_batch([bytes(size + index)])) for index in range(2)]
        name = {"topic_id": ids[topic]} if version >= FIRST_ID_VERSION else {"name": topic}
        partitions = [{"index": index, "records": batch} for index, batch in enumerate(batches)]
        data = [{**name, "partition_data": partitions}]
        answer = ask(connection, PRODUCE, version, CLIENT_ID, acks=-1, timeout=30_000, topic_data=data)
        codes = [one["error_code"] for one in answer["responses"][0]["partition_responses"]]
        assert codes == [0, 0], (version, answer)
        moved += sum(map(len, batches))
    return moved


def read(connection: Raw, ids: dict[str, bytes], asked: Sequence[Asked]) -> int:
    """Fetch all of both partitions in every form; return the number of record bytes."""
    return sum(
        sum(map(len, records_of(fetch(connection, version, asked, ids, CLIENT_ID, max_wait=500))))
        for version in FETCH_VERSIONS
    )
