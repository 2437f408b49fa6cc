"""Produce: parsing returns the sent values, building restores the same bytes, and responses read back."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.produce import (
    PartitionProduce,
    PartitionProduced,
    ProduceRequest,
    TopicProduce,
    TopicProduced,
    build_produce_request,
    build_produce_response,
    merge_produce_response,
    parse_produce_request,
    parse_produce_response,
)
from tests.unit.wire.kafka_python import ProduceResponse
from tests.unit.wire.trees import decode, decode_joined, encode, request_type, response_type, trees

_VERSIONS = range(3, 14)
_MODEST = settings(max_examples=10, deadline=None)


def _topic_name(version):
    return "topic_id" if version >= 13 else "name"


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_requests_are_parsed_and_built_again(version, data):
    entity = request_type(0, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    request = parse_produce_request(memoryview(body), version)
    assert (request.transactional_id, request.acks) == (tree["transactional_id"], tree["acks"])
    assert request.timeout_ms == tree["timeout"]
    assert [
        (topic.topic, [(partition.index, partition.records) for partition in topic.partitions])
        for topic in request.topics
    ] == [
        (topic[_topic_name(version)], [(each["index"], each["records"]) for each in topic["partition_data"]])
        for topic in tree["topic_data"]
    ]
    assert b"".join(build_produce_request(request)) == body


def test_records_are_not_copied():
    body = b"".join(build_produce_request(_request(9, b"x" * 70_000)))
    parsed = parse_produce_request(body, 9)
    records = parsed.topics[0].partitions[0].records
    assert records.obj is body
    assert any(buffer is records for buffer in build_produce_request(parsed))


def _request(version, records):
    return ProduceRequest(version, None, -1, 1000, [TopicProduce("orders", [PartitionProduce(0, memoryview(records))])])


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384, 2097150, 2097151, 2097152])
def test_lengths_at_the_edges_of_varints(length):
    body = b"".join(build_produce_request(_request(9, bytes(length))))
    assert parse_produce_request(body, 9).topics[0].partitions[0].records == bytes(length)


@pytest.mark.parametrize("version", _VERSIONS)
def test_topics_can_be_filtered(version):
    names = [bytes([n]) * 16 if version >= 13 else f"topic-{n}" for n in range(4)]
    topics = [TopicProduce(name, [PartitionProduce(3, memoryview(b"batch"))]) for name in names]
    request = ProduceRequest(version, "txn", -1, 1000, topics)
    kept = request._replace(topics=topics[1:3])
    tree = decode_joined(request_type(0, version), build_produce_request(kept))
    assert [topic[_topic_name(version)] for topic in tree["topic_data"]] == names[1:3]


_ANSWERS = st.builds(
    PartitionProduced,
    st.integers(0, 9),
    st.sampled_from([0, 6, 87]),
    st.integers(-1, 2**40),
    st.integers(-1, 2**40),
    st.integers(-1, 2**40),
    st.none() | st.text(max_size=5),
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=5)), max_size=2).map(tuple),
)


def _own_topics(version):
    topic = st.binary(min_size=16, max_size=16) if version >= 13 else st.text(max_size=5)
    return st.lists(st.builds(TopicProduced, topic, st.lists(_ANSWERS, max_size=3)), max_size=3)


def _as_trees(version, topics):
    return [
        {
            _topic_name(version): topic.topic,
            "partition_responses": [_partition_tree(version, answer) for answer in topic.partitions],
        }
        for topic in topics
    ]


def _partition_tree(version, answer):
    tree = {
        "index": answer.index,
        "error_code": answer.error_code,
        "base_offset": answer.base_offset,
        "log_append_time": answer.log_append_time_ms,
    }
    if version >= 5:
        tree["log_start_offset"] = answer.log_start_offset
    if version >= 8:
        tree["error_message"] = answer.error_message
        tree["record_errors"] = [
            {"batch_index": index, "batch_index_error_message": message} for index, message in answer.record_errors
        ]
    return tree


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_own_answers_join_the_brokers(version, data):
    entity = response_type(0, version)
    brokers, own = data.draw(trees(entity)), data.draw(_own_topics(version))
    merged = decode_joined(entity, merge_produce_response(encode(entity, brokers), version, own))
    assert merged == brokers | {"responses": brokers["responses"] + _as_trees(version, own)}
    built = decode(entity, build_produce_response(version, own, throttle_ms=7))
    assert built == {"responses": _as_trees(version, own), "throttle_time": 7}


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_answers_of_brokers_are_parsed(version, data):
    entity = response_type(0, version)
    tree = data.draw(trees(entity))
    topics = parse_produce_response(encode(entity, tree), version)
    assert _as_trees(version, topics) == [
        {
            _topic_name(version): topic[_topic_name(version)],
            "partition_responses": [_known_fields(answer) for answer in topic["partition_responses"]],
        }
        for topic in tree["responses"]
    ]


def _known_fields(answer):
    """Return an answer without tagged fields."""
    fields = {"index", "error_code", "base_offset", "log_append_time", "log_start_offset", "error_message"}
    known = {name: value for name, value in answer.items() if name in fields}
    if "record_errors" in answer:
        known["record_errors"] = [
            {name: error[name] for name in ("batch_index", "batch_index_error_message")}
            for error in answer["record_errors"]
        ]
    return known


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_answers_that_are_cut_off_are_protocol_errors(version, data):
    body = build_produce_response(version, data.draw(_own_topics(version)))
    with pytest.raises(ProtocolError):
        parse_produce_response(body[: data.draw(st.integers(0, len(body) - 5))], version)


@pytest.mark.parametrize("version", _VERSIONS)
def test_kafka_python_reads_built_responses(version):
    topic = bytes(range(16)) if version >= 13 else "orders"
    body = build_produce_response(version, [TopicProduced(topic, [PartitionProduced(4, 0, 77, -1, 5)])])
    partition = ProduceResponse.decode(body, version=version).responses[0].partition_responses[0]
    assert (partition.index, partition.error_code, partition.base_offset) == (4, 0, 77)


@pytest.mark.parametrize("version", [-1, 14])
def test_other_versions_are_rejected(version):
    with pytest.raises(ProtocolError, match=f"v{version}"):
        parse_produce_request(bytes(20), version)


@pytest.mark.parametrize(("version", "topic"), [(12, bytes(16)), (13, "orders"), (13, b"short")])
def test_a_topic_the_version_cannot_name_is_a_mistake_of_the_caller(version, topic):
    with pytest.raises(ValueError, match="topic"):
        build_produce_response(version, [TopicProduced(topic, [])])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_topics_of_old_formats_are_read(version):
    records = b"message set"
    partition = struct.pack(">ii", 3, len(records)) + records
    body = (
        struct.pack(">hii", 1, 500, 2) + b"\0\1a" + struct.pack(">i", 1) + partition + b"\0\1b" + struct.pack(">i", 0)
    )
    request = parse_produce_request(body, version)
    assert (request.version, request.transactional_id, request.acks, request.timeout_ms) == (version, None, 1, 500)
    assert [
        (topic.topic, [(one.index, bytes(one.records)) for one in topic.partitions]) for topic in request.topics
    ] == [
        ("a", [(3, records)]),
        ("b", []),
    ]
    with pytest.raises(ProtocolError):
        build_produce_request(request)
