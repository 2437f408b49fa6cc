"""Rules of Fetch that clients do not show, compared field by field with the broker of a classic topic."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from proxy.demo.stack import Stack
from tests.batches import make_batch
from tests.support.questions import ask
from tests.support.topics import CLASSIC, DISKLESS, create_topic, offsets

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
UNKNOWN_SERVER_ERROR = -1
NODE = 1
SIZE = len(make_batch())
BATCHES = 6
VERSION = 11
"""Last version with topic names; it has sessions, epochs and racks."""
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, FETCH_SESSION_ID_NOT_FOUND = 1, 3, 70

Asked = tuple[str, int, int, int]
"""Topic, partition, offset and maximum bytes."""


@pytest.fixture(scope="module")
def topics(running_stack: Stack) -> dict[str, str]:
    """Create topics by kind with two partitions, of which the first has `BATCHES` batches of a record each."""
    made = {}
    for kind in (CLASSIC, DISKLESS):
        made[kind] = name = f"fetch-rules-{kind}-{uuid.uuid4().hex[:6]}"
        create_topic(running_stack, name, kind, assignment=[[NODE, 2, 3]] * 2)
        offsets(running_stack, name, 1)
        for _ in range(BATCHES):
            produce(running_stack, name)
    return made


def listener(stack: Stack, rack: str = "rack-a") -> str:
    """Return the listener of the broker that leads the classic partitions, at the rack's proxy."""
    return f"127.0.0.1:{stack.ports.broker_port_start(list(stack.proxies).index(rack)) + NODE}"


def produce(stack: Stack, name: str, rack: str = "rack-a") -> None:
    """Send a batch of one record to the first partition."""
    data = [{"name": name, "partition_data": [{"index": 0, "records": bytes(make_batch())}]}]
    answer = ask(listener(stack, rack), PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def fetch(address: str, *asked: Asked, **values: Any) -> list[dict[str, Any]]:
    """Return the partitions of the answer in order; each has its topic's name as `topic`."""
    answer = whole_answer(address, *asked, **values)
    assert answer.get("error_code", 0) == 0
    return [{"topic": topic["topic"], **one} for topic in answer["responses"] for one in topic["partitions"]]


def whole_answer(address: str, *asked: Asked, version: int = VERSION, **values: Any) -> dict[str, Any]:
    """Return the answer to a Fetch, including its session."""
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
    return ask(address, FETCH, version, topics=topics, **request)


@pytest.mark.parametrize("version", [4, 5, 7, 10, 11, 12])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_errors_and_empty_partitions_do_not_change_the_other_answers(
    running_stack: Stack, topics: dict[str, str], version: int, isolation_level: int
) -> None:
    """Fetch out of range before and after the log, at the end, of an empty partition, and of a missing one."""
    reported = []
    for kind, address in (
        (CLASSIC, f"127.0.0.1:{running_stack.ports.broker(NODE)}"),
        (DISKLESS, listener(running_stack)),
    ):
        found = []
        for partition, offset in ((0, -1), (0, BATCHES + 1), (0, BATCHES), (1, 0), (1, 1), (9, 0)):
            asked = (topics[kind], partition, offset, 1 << 20)
            (one,) = fetch(address, asked, version=version, isolation_level=isolation_level)
            found.append({name: value for name, value in one.items() if name != "topic"})
        reported.append(found)
    assert reported[1] == reported[0]
    assert [one["error_code"] for one in reported[1]] == [
        OFFSET_OUT_OF_RANGE,
        OFFSET_OUT_OF_RANGE,
        0,
        0,
        OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize(
    "values",
    [
        {"isolation_level": 2},
        {"isolation_level": -1},
        {"replica_id": 7},
        {"max_bytes": -1},
        {"max_bytes": 0},
        {"partition_bytes": -1},
        {"min_bytes": -5},
        {"max_wait": -5},
    ],
    ids=str,
)
def test_invalid_consumer_fields_are_answered_like_brokers_do(
    running_stack: Stack, topics: dict[str, str], version: int, values: dict[str, int]
) -> None:
    """Try unknown isolation levels, negative limits, and a Fetch that falsely claims to be a follower's."""
    reported = []
    values = dict(values)
    partition_bytes = values.pop("partition_bytes", 1 << 20)
    for kind, address in (
        (CLASSIC, f"127.0.0.1:{running_stack.ports.broker(NODE)}"),
        (DISKLESS, listener(running_stack)),
    ):
        asked = [(topics[kind], partition, offset, partition_bytes) for partition, offset in ((0, 0), (1, 0))]
        answer = whole_answer(address, *asked, version=version, **values)
        found = [
            {**one, "records": len(one.get("records") or b""), "partition": one["partition_index"]}
            for topic in answer["responses"]
            for one in topic["partitions"]
        ]
        reported.append((answer.get("error_code"), found))
    assert reported[1] == reported[0]


@pytest.mark.parametrize("isolation_level", [-1, 2])
def test_an_unknown_isolation_level_fails_list_offsets(
    running_stack: Stack, topics: dict[str, str], isolation_level: int
) -> None:
    reported = []
    for kind, address in (
        (CLASSIC, f"127.0.0.1:{running_stack.ports.broker(NODE)}"),
        (DISKLESS, listener(running_stack)),
    ):
        partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
        asked = [{"name": topics[kind], "partitions": partitions}]
        answer = ask(address, LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation_level, topics=asked)
        reported.append(answer["topics"][0]["partitions"])
    assert reported[1] == reported[0]
    assert reported[1][0]["error_code"] == UNKNOWN_SERVER_ERROR


def test_a_repeated_partition_is_answered_once_for_its_last_entry(running_stack: Stack, topics: dict[str, str]) -> None:
    reported = []
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
        reported.append(
            [(one["partition_index"], int.from_bytes(one["records"][:8], "big")) for one in topic["partitions"]]
        )
    assert reported == [[(0, 4)]] * 2


def test_the_kind_that_is_named_first_uses_the_byte_limit_first(running_stack: Stack, topics: dict[str, str]) -> None:
    """Otherwise a diskless partition next to classic ones with a backlog would never get its turn."""
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


def test_a_session_of_the_broker_ends_if_a_diskless_partition_is_added(
    running_stack: Stack, topics: dict[str, str]
) -> None:
    address = listener(running_stack)
    classic, diskless = ((topics[kind], 0, 0, SIZE) for kind in (CLASSIC, DISKLESS))
    for asked, session in (([classic], True), ([classic, diskless], False), ([diskless], False)):
        begun = whole_answer(address, *asked, session_id=0, session_epoch=0)
        assert begun["error_code"] == 0
        assert (begun["session_id"] != 0) == session
        assert [len(topic["partitions"][0]["records"]) for topic in begun["responses"]] == [SIZE] * len(asked)
        if session:
            going_on = {"session_id": begun["session_id"], "session_epoch": 1}
            refused = whole_answer(address, diskless, **going_on)
            assert (refused["error_code"], refused["responses"]) == (FETCH_SESSION_ID_NOT_FOUND, [])
            kept = whole_answer(address, (topics[CLASSIC], 1, 0, SIZE), **going_on)
            assert (kept["error_code"], kept["session_id"]) == (0, begun["session_id"])


@pytest.mark.parametrize("order", [(CLASSIC, DISKLESS), (DISKLESS, CLASSIC)])
def test_a_fetch_waits_for_both_halves_until_there_is_enough(running_stack: Stack, order: tuple[str, str]) -> None:
    """A commit through any proxy and an append at any broker count. The wait is longer than the test may take."""
    names = [f"fetch-waits-{'-'.join(order)}-{kind}-{uuid.uuid4().hex[:6]}" for kind in order]
    for name, kind in zip(names, order, strict=True):
        create_topic(running_stack, name, kind, assignment=[[NODE, 2, 3]])
        offsets(running_stack, name)
    asked = [(name, 0, 0, 1 << 20) for name in names]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(fetch, listener(running_stack), *asked, min_bytes=2 * SIZE, max_wait=110_000)
        for name in names:
            assert not waiting.done()
            produce(running_stack, name, "rack-b")
        assert [len(one["records"]) for one in waiting.result()] == [SIZE] * 2
