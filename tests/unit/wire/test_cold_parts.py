"""A large message in parts: the parts request the same as the whole, and their answers form its answer."""

from __future__ import annotations

from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import request as v7

from proxy.wire.cold import encode, milliseconds, read_request, read_response
from proxy.wire.cold_parts import answer_part, join_answers, request_parts
from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.primitives import MAX_WHOLE_ELEMENTS, write_count
from proxy.wire.steps import at_once
from tests.support.echo_broker import echo

MOST = 7
LIST_OFFSETS, DELETE_TOPICS, ALTER_SHARE_GROUP_OFFSETS, CREATE_TOPICS = 2, 20, 91, 19


def list_offsets(*partitions: int) -> bytes:
    """Build a ListOffsets v7 of topics with this many partitions each."""
    topics = tuple(
        v7.ListOffsetsTopic(
            name=f"t{number}",  # type: ignore[arg-type]
            partitions=tuple(
                v7.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=index)  # type: ignore[arg-type]
                for index in range(size)
            ),
        )
        for number, size in enumerate(partitions)
    )
    return encode(v7.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics))  # type: ignore[arg-type]


def parts(key: int, version: int, body: bytes, *arrays: str, cuts: bool = True) -> list[Any]:
    cutting = request_parts(key, version, body, arrays, max_elements=MOST, cuts_elements=cuts)
    return [read_request(key, version, b"".join(one)) for one in at_once(cutting)]


def named(request: Any) -> list[tuple[str, int]]:
    return [(str(topic.name), one.partition_index) for topic in request.topics for one in topic.partitions]


@pytest.mark.parametrize("partitions", [(3,), (30,), (6, 1), (1,) * 20, (0, 0, 40, 0, 2, 7, 8), (6, 15, 6)])
def test_the_parts_ask_for_each_partition_once_and_in_order(partitions: tuple[int, ...]) -> None:
    body = list_offsets(*partitions)
    found = parts(LIST_OFFSETS, 7, body, "topics")
    assert [one for part in found for one in named(part)] == named(read_request(LIST_OFFSETS, 7, body))
    assert {str(topic.name) for part in found for topic in part.topics} == {f"t{one}" for one in range(len(partitions))}
    assert all(part.isolation_level == 1 for part in found)
    assert all(len(part.topics) + len(named(part)) <= MOST + 1 for part in found)


def test_the_answers_to_the_parts_make_the_answer_to_the_whole() -> None:
    body, answer_type = list_offsets(3, 30, 3), load_response_schema(LIST_OFFSETS, 7)
    answers = [encode(echo(part, answer_type)) for part in parts(LIST_OFFSETS, 7, body, "topics")]
    joined = join_answers(LIST_OFFSETS, 7, [answer_part(LIST_OFFSETS, 7, one, "topics") for one in answers])
    whole = read_response(LIST_OFFSETS, 7, b"".join(joined))
    assert named(whole) == named(read_request(LIST_OFFSETS, 7, body))


def test_the_longest_throttle_time_and_an_error_of_the_whole_are_returned() -> None:
    answer_type: Any = load_response_schema(ALTER_SHARE_GROUP_OFFSETS, 0)
    answers = [
        encode(
            answer_type(throttle_time=milliseconds(ms), error_code=ErrorCode(code), error_message=None, responses=())
        )
        for ms, code in ((5, 0), (70, 0), (6, 15))
    ]
    found = [answer_part(ALTER_SHARE_GROUP_OFFSETS, 0, one, "responses") for one in answers]
    whole = read_response(ALTER_SHARE_GROUP_OFFSETS, 0, b"".join(join_answers(ALTER_SHARE_GROUP_OFFSETS, 0, found)))
    assert (whole.throttle_time.total_seconds(), whole.error_code.value) == (0.07, 15)


def test_an_array_of_names_is_spread() -> None:
    body = write_count(20, True) + b"".join(b"\x03%02d" % one for one in range(20)) + bytes(4) + b"\0"
    found = parts(DELETE_TOPICS, 5, body, "topics", "topic_names")
    assert [str(name) for part in found for name in part.topic_names] == [f"{one:02d}" for one in range(20)]
    assert len(found) == 3


def created(assigned: int) -> bytes:
    """Build a CreateTopics v7 of three topics, the second of which assigns this many partitions."""
    plain = b"\0\0\0\1\0\1" + b"\1\1\0"
    assignment = write_count(assigned, True) + (bytes(4) + b"\1\0") * assigned
    return b"\4" + b"\2a" + plain + b"\2b" + b"\0\0\0\1\0\1" + assignment + b"\1\0" + b"\2c" + plain + bytes(6)


def test_elements_that_are_not_cut_stay_whole_up_to_a_bound() -> None:
    found = parts(CREATE_TOPICS, 7, created(30), "topics", cuts=False)
    assert [[(str(one.name), len(one.assignments)) for one in part.topics] for part in found] == [
        [("a", 0)],
        [("b", 30)],
        [("c", 0)],
    ]
    with pytest.raises(TooManyElements, match="topics has more than"):
        parts(CREATE_TOPICS, 7, created(MAX_WHOLE_ELEMENTS + 1), "topics", cuts=False)


def altered(*names: str) -> bytes:
    """An IncrementalAlterConfigs v1 of topics, without configs."""
    resources = b"".join(b"\2" + bytes([len(name) + 1]) + name.encode() + b"\1\0" for name in names)
    return write_count(len(names), True) + resources + b"\0\0"


def altered_parts(*names: str) -> list[Any]:
    cutting = request_parts(44, 1, altered(*names), ("resources",), max_elements=MOST, cuts_elements=False, once=True)
    return at_once(cutting)


def test_a_request_that_names_something_twice_is_not_cut() -> None:
    """Brokers reject both elements, which they can't if these are in different parts."""
    names = [f"t{number}" for number in range(30)]
    assert len(altered_parts(*names)) > 1
    assert altered_parts(*names, "t0") == []
    many = [f"t{number}" for number in range(MAX_WHOLE_ELEMENTS)]
    assert altered_parts(*many)
    with pytest.raises(TooManyElements):
        altered_parts(*many, "t0")


@pytest.mark.parametrize("kept", range(0, 300, 7))
def test_a_message_that_is_cut_off_is_a_protocol_error(kept: int) -> None:
    body = list_offsets(3, 30)
    assert len(body) > 300
    with pytest.raises(ProtocolError):
        parts(LIST_OFFSETS, 7, body[:kept], "topics")
