"""Rules of a Fetch that clients don't show, field by field: as the broker of a classic topic answers."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.topics import CLASSIC, DISKLESS, create_topic, offsets

PRODUCE, FETCH = 0, 1
NODE = 1
SIZE = len(make_batch())
BATCHES = 6
VERSION = 11
"""The last that names topics, with sessions, epochs and racks."""
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION = 1, 3

Asked = tuple[str, int, int, int]
"""Topic, partition, offset and most bytes."""


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> dict[str, str]:
    """By kind: two partitions, of which the first has `BATCHES` batches of a record each."""
    made = {}
    for kind in (CLASSIC, DISKLESS):
        made[kind] = name = f"fetch-rules-{kind}"
        create_topic(running_stack, name, kind, assignment=[[NODE, 2, 3]] * 2)
        offsets(running_stack, name, 1)
        for _ in range(BATCHES):
            data = [{"name": name, "partition_data": [{"index": 0, "records": bytes(make_batch())}]}]
            answer = ask(listener(running_stack), PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    return made


def listener(stack: Stack) -> str:
    """Of the broker that leads the classic partitions, at the proxy of the first rack."""
    return f"127.0.0.1:{stack.ports.broker_port_start(0) + NODE}"


def fetch(address: str, *asked: Asked, version: int = VERSION, **values: Any) -> list[dict[str, Any]]:
    """The partitions of the answer in order; each has its topic's name as `topic`."""
    topics = [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": partition,
                    "current_leader_epoch": -1,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": max_bytes,
                }
            ],
        }
        for topic, partition, offset, max_bytes in asked
    ]
    request = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, **values}
    answer = ask(address, FETCH, version, topics=topics, **request)
    assert answer.get("error_code", 0) == 0
    return [{"topic": topic["topic"], **one} for topic in answer["responses"] for one in topic["partitions"]]


@pytest.mark.parametrize("version", [4, 5, 7, 10, 11, 12])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_beside_an_error_and_beside_nothing_the_same_is_told(
    running_stack: Stack, topics: dict[str, str], version: int, isolation_level: int
) -> None:
    """Out of range before and behind, at the end, of an empty partition, and of one that is not there."""
    told = []
    for kind, address in (
        (CLASSIC, f"127.0.0.1:{running_stack.ports.broker(NODE)}"),
        (DISKLESS, listener(running_stack)),
    ):
        found = []
        for partition, offset in ((0, -1), (0, BATCHES + 1), (0, BATCHES), (1, 0), (1, 1), (9, 0)):
            asked = (topics[kind], partition, offset, 1 << 20)
            (one,) = fetch(address, asked, version=version, isolation_level=isolation_level)
            found.append({name: value for name, value in one.items() if name != "topic"})
        told.append(found)
    assert told[1] == told[0]
    assert [one["error_code"] for one in told[1]] == [1, 1, 0, 0, 1, UNKNOWN_TOPIC_OR_PARTITION]


def test_a_partition_that_is_named_twice_is_answered_once_as_named_last(
    running_stack: Stack, topics: dict[str, str]
) -> None:
    told = []
    for kind, address in (
        (CLASSIC, f"127.0.0.1:{running_stack.ports.broker(NODE)}"),
        (DISKLESS, listener(running_stack)),
    ):
        partitions = [
            {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1}
            | {"partition_max_bytes": SIZE}
            for offset in (1, 4)
        ]
        asked = [{"topic": topics[kind], "partitions": partitions}]
        answer = ask(
            address, FETCH, VERSION, replica_id=-1, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=asked
        )
        (topic,) = answer["responses"]
        told.append(
            [(one["partition_index"], int.from_bytes(one["records"][:8], "big")) for one in topic["partitions"]]
        )
    assert told == [[(0, 4)]] * 2


def test_the_half_that_is_named_first_has_the_first_call_on_the_bytes(
    running_stack: Stack, topics: dict[str, str]
) -> None:
    """Else a diskless partition beside classic ones with a backlog would never get its turn."""
    address = listener(running_stack)
    for first, second in ((CLASSIC, DISKLESS), (DISKLESS, CLASSIC)):
        asked = [(topics[kind], 0, 0, 1 << 20) for kind in (first, second)]
        one, other = fetch(address, *asked, max_bytes=2 * SIZE)
        assert (one["topic"], other["topic"]) == (topics[first], topics[second])
        assert len(one["records"]) == 2 * SIZE
        assert len(other["records"]) == (SIZE if second == CLASSIC else 0), "a broker always gives a first batch"
        assert one["high_watermark"] == other["high_watermark"] == BATCHES
        one, other = fetch(address, *asked, max_bytes=6 * SIZE)
        assert [len(one["records"]), len(other["records"])] == [6 * SIZE, 0 if second == DISKLESS else SIZE]
        one, other = fetch(address, *asked, max_bytes=9 * SIZE)
        assert [len(one["records"]), len(other["records"])] == [6 * SIZE, 3 * SIZE]
