"""Fetch responses that were built read back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.fetch_response import (
    PartitionFetched,
    TopicFetched,
    build_fetch_response,
    parse_fetch_response,
)
from tests.unit.wire.kafka_python import FetchResponse
from tests.unit.wire.trees import decode_joined, encode, response_type, trees

_VERSIONS = range(4, 19)
_MODEST = settings(max_examples=10, deadline=None)
_OFFSETS = st.integers(-1, 2**40)


def _topic_name(version):
    return "topic_id" if version >= 13 else "topic"


@st.composite
def _partitions(draw):
    records = draw(st.lists(st.binary(min_size=1, max_size=9) | st.integers(100, 20000).map(bytes), max_size=3))
    length = sum(map(len, records)) if records else draw(st.sampled_from([-1, 0]))
    aborted = draw(st.none() | st.lists(st.tuples(_OFFSETS, _OFFSETS), max_size=3))
    offsets = draw(st.tuples(_OFFSETS, _OFFSETS, _OFFSETS))
    error_code, preferred = draw(st.sampled_from([0, 0, 1])), draw(st.integers(-1, 3))
    return PartitionFetched(draw(st.integers(0, 9)), error_code, *offsets, records, length, aborted, preferred)


def _own_topics(version, names):
    topic = names if version < 13 else names.map(lambda name: name.encode().ljust(16, b"\0"))
    return st.lists(st.builds(TopicFetched, topic, st.lists(_partitions(), max_size=3)), max_size=3)


def _as_tree(version, fetched):
    return {
        _topic_name(version): fetched.topic,
        "partitions": [_partition_tree(version, partition) for partition in fetched.partitions],
    }


def _partition_tree(version, partition):
    aborted = partition.aborted
    tree = {
        "partition_index": partition.index,
        "error_code": partition.error_code,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "aborted_transactions": aborted
        if aborted is None
        else [{"producer_id": producer_id, "first_offset": first_offset} for producer_id, first_offset in aborted],
        "records": None if partition.records_length < 0 else b"".join(partition.records),
    }
    if version >= 5:
        tree["log_start_offset"] = partition.log_start_offset
    if version >= 11:
        tree["preferred_read_replica"] = partition.preferred_read_replica
    return tree


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_built_responses_read_back(version, data):
    topics = data.draw(_own_topics(version, st.sampled_from("abc")))
    buffers = build_fetch_response(version, 5, topics, throttle_ms=3, error_code=0)
    tree = decode_joined(response_type(1, version), buffers)
    session = {"session_id": 5, "error_code": 0} if version >= 7 else {}
    assert tree == {"throttle_time": 3, "responses": [_as_tree(version, topic) for topic in topics], **session}
    body = b"".join(buffers)
    parsed = parse_fetch_response(body, version)
    assert [_as_tree(version, topic) for topic in parsed.topics] == tree["responses"]


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_a_brokers_response_is_read(version, data):
    entity = response_type(1, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    parsed = parse_fetch_response(body, version)
    assert (parsed.throttle_ms, parsed.error_code) == (tree["throttle_time"], tree.get("error_code", 0))
    records = [p["records"] for topic in tree["responses"] for p in topic["partitions"]]
    assert [p.records_length for topic in parsed.topics for p in topic.partitions] == [
        -1 if each is None else len(each) for each in records
    ]
    codes = [p["error_code"] for topic in tree["responses"] for p in topic["partitions"]]
    assert [p.error_code for topic in parsed.topics for p in topic.partitions] == codes


@pytest.mark.parametrize("length", [1, 127, 128, 16383, 16384, 2097151, 2097152])
def test_records_are_not_copied_whatever_their_length(length):
    records = bytes(length)
    buffers = build_fetch_response(12, 0, [TopicFetched("a", [PartitionFetched(0, 0, 1, 1, 0, [records], length)])])
    assert any(buffer is records for buffer in buffers)
    body = b"".join(buffers)
    (partition,) = parse_fetch_response(body, 12).topics[0].partitions
    assert partition.records[0].obj is body
    assert partition.records[0] == records


@pytest.mark.parametrize("version", _VERSIONS)
def test_kafka_python_reads_built_responses(version):
    topic = bytes(range(16)) if version >= 13 else "orders"
    partition = PartitionFetched(4, 0, 77, 76, 5, [b"one", b"two"], 6, [(9, 70)])
    body = b"".join(build_fetch_response(version, 0, [TopicFetched(topic, [partition])]))
    (read,) = FetchResponse.decode(body, version=version).responses[0].partitions
    assert (read.partition_index, read.high_watermark, bytes(read.records)) == (4, 77, b"onetwo")
    assert read.aborted_transactions[0].producer_id == 9
