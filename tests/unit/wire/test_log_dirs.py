"""DescribeLogDirs: the walkers against the schema-driven encoder, in every version, and cut at every byte."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.log_dirs import LogDir, has_directories, read_partitions, rewrite_log_dirs
from proxy.wire.primitives import MAX_DECODED_ELEMENTS
from tests.support.questions import filled
from tests.unit.wire.trees import decode, encode, request_type, response_type

KEY = 35
VERSIONS = range(1, 6)
ASKED = [{"topic": "a", "partitions": [3, 0, 3]}, {"topic": "b", "partitions": []}, {"topic": "a", "partitions": [7]}]


def partition(index: int, size: int) -> dict[str, Any]:
    return {"partition_index": index, "partition_size": size, "offset_lag": 5, "is_future_key": index == 1}


def directory(path: str, *topics: str) -> dict[str, Any]:
    partitions = [partition(index, 1_000 + index) for index in range(3)]
    named = [{"name": name, "partitions": partitions} for name in topics]
    return {"log_dir": path, "topics": named, "total_bytes": 9, "usable_bytes": 8, "is_cordoned": True}


def answer(version: int, *directories: dict[str, Any], error_code: int = 0) -> bytes:
    entity = response_type(KEY, version)
    return encode(entity, filled(entity, {"throttle_time": 7, "error_code": error_code, "results": list(directories)}))


def names(tree: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(one["log_dir"], [topic["name"] for topic in one["topics"]]) for one in tree["results"]]


def rewritten(body: bytes, version: int, left_out: tuple[str, ...], more: LogDir | None) -> dict[str, Any]:
    tree: dict[str, Any] = decode(
        response_type(KEY, version), b"".join(rewrite_log_dirs(body, version, left_out, more))
    )
    return tree


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_left_out_and_a_directory_is_added(version: int) -> None:
    body = answer(version, directory("/1", "d", "a", "d2", "b"), directory("/2"), directory("/3", "d", "d2"))
    changed = rewritten(body, version, ("d", "d2"), LogDir(56, "s3://b", {"d": [(1, 10), (4, 40)], "e": []}))
    assert names(changed) == [("/1", ["a", "b"]), ("/2", []), ("/3", []), ("s3://b", ["d", "e"])]
    own = changed["results"].pop()
    assert own["error_code"] == 56
    assert [(one["partition_index"], one["partition_size"]) for one in own["topics"][0]["partitions"]] == [
        (1, 10),
        (4, 40),
    ]
    assert own.get("total_bytes", -1) == own.get("usable_bytes", -1) == -1
    assert not own.get("is_cordoned", False)
    unchanged = decode(response_type(KEY, version), body)
    for one in unchanged["results"]:
        one["topics"] = [topic for topic in one["topics"] if topic["name"] in ("a", "b")]
    assert changed == unchanged


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_diskless_topics_stays_as_it_is(version: int) -> None:
    body = answer(version, directory("/1", "a"), directory("/2"))
    assert b"".join(rewrite_log_dirs(body, version, (), None)) == body
    assert has_directories(body, version)
    assert not has_directories(answer(version), version)
    assert version < 3 or not has_directories(answer(version, directory("/1"), error_code=31), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_of_a_request(version: int) -> None:
    entity = request_type(KEY, version)
    assert read_partitions(encode(entity, filled(entity, {"topics": ASKED})), version) == {"a": [3, 0, 3, 7], "b": []}
    assert read_partitions(encode(entity, filled(entity, {"topics": None})), version) is None
    assert read_partitions(encode(entity, filled(entity, {"topics": []})), version) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_that_end_too_early(version: int) -> None:
    body = answer(version, directory("/1", "d", "a"), directory("/2", "b"))
    for length in range(len(body)):
        with pytest.raises(ProtocolError):
            rewrite_log_dirs(body[:length], version, ("d",), None)
    entity = request_type(KEY, version)
    body = encode(entity, filled(entity, {"topics": ASKED}))
    for length in range(len(body)):
        with pytest.raises(ProtocolError):
            read_partitions(body[:length], version)


def test_a_request_with_too_many_partitions() -> None:
    entity = request_type(KEY, 1)
    asked = [{"topic": "a", "partitions": [0] * MAX_DECODED_ELEMENTS}]
    with pytest.raises(TooManyElements):
        read_partitions(encode(entity, filled(entity, {"topics": asked})), 1)
