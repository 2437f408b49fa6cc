"""Fetch requests: parsing returns the sent values, building restores the same bytes, and versions translate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch import FetchRequest, PartitionFetch, TopicFetch, build_fetch_request, parse_fetch_request
from tests.unit.wire.trees import decode, encode, request_type, trees

_VERSIONS = range(4, 19)


def _topic(version, tree):
    return tree["topic_id" if version >= 13 else "topic"]


@pytest.mark.parametrize("version", _VERSIONS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_requests_are_parsed_and_built_again(version, data):
    entity = request_type(1, version)
    tree = data.draw(trees(entity))
    # The proxy gives forgotten topics on without their tagged fields, of which no version has any.
    for forgotten in tree.get("forgotten_topics_data", []):
        forgotten.pop("unknown tags", None)
    body = encode(entity, tree)
    request = parse_fetch_request(body, version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (
        tree["max_wait"],
        tree["min_bytes"],
        tree["max_bytes"],
    )
    assert request.isolation_level == tree["isolation_level"]
    assert request.session_id == tree.get("session_id", 0)
    assert request.session_epoch == tree.get("session_epoch", -1)
    assert request.rack_id == tree.get("rack_id", "")
    assert request.replica_id == tree.get("replica_state", {}).get("replica_id", tree.get("replica_id", -1))
    assert request.forgotten == [
        (_topic(version, forgotten), forgotten["partitions"]) for forgotten in tree.get("forgotten_topics_data", [])
    ]
    assert [(topic.topic, [partition[:6] for partition in topic.partitions]) for topic in request.topics] == [
        (
            _topic(version, topic),
            [
                (
                    partition["partition"],
                    partition.get("current_leader_epoch", -1),
                    partition["fetch_offset"],
                    partition.get("last_fetched_epoch", -1),
                    partition.get("log_start_offset", -1),
                    partition["partition_max_bytes"],
                )
                for partition in topic["partitions"]
            ],
        )
        for topic in tree["topics"]
    ]
    assert build_fetch_request(request) == body


@pytest.mark.parametrize("target", _VERSIONS)
@pytest.mark.parametrize("source", [4, 10, 11, 12])
def test_a_request_translates_to_other_versions(source, target):
    partition = PartitionFetch(2, -1, 1234, -1, -1, 4096)
    name = bytes(range(16)) if target >= 13 else "orders"
    request = FetchRequest(source, -1, 500, 1, 1 << 20, 1, 0, -1, [TopicFetch("orders", [partition])], [], "")
    parsed = parse_fetch_request(build_fetch_request(request), source)
    translated = parsed._replace(version=target, topics=[TopicFetch(name, parsed.topics[0].partitions)])
    tree = decode(request_type(1, target), build_fetch_request(translated))
    assert _topic(target, tree["topics"][0]) == name
    (asked,) = tree["topics"][0]["partitions"]
    assert (asked["partition"], asked["fetch_offset"], asked["partition_max_bytes"]) == (2, 1234, 4096)
    assert tree["isolation_level"] == 1


@pytest.mark.parametrize("version", [3, 19])
def test_other_versions_are_rejected(version):
    with pytest.raises(ProtocolError, match=f"v{version}"):
        parse_fetch_request(bytes(60), version)
