"""Partitions get the leaders of each rule, in both Metadata and DescribeTopicPartitions, and nothing else changes."""

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.describe_topic_partitions import build_lower_request, rewrite_response
from proxy.wire.metadata import build_lower_metadata_request, rewrite_metadata_response
from proxy.wire.partition_leaders import HASH_SLOTS, HashedLeaders, ReplicaLeaders, SoleLeader
from tests.unit.wire.proposed import DESCRIBE_TOPIC_PARTITIONS_REQUEST, METADATA_REQUEST, METADATA_RESPONSE
from tests.unit.wire.test_metadata import led, proxy_address, rewritten_nodes, some_are_diskless
from tests.unit.wire.trees import UNKNOWN_TAGS, decode, decode_joined, encode, request_type, response_type, trees

_SLOTS = tuple(range(1000, 1000 + HASH_SLOTS))
_OTHERS = {leader: ((1, 2), (3,), ())[leader % 3] for leader in _SLOTS}
"""Replicas after each leader."""
_RULES = [
    SoleLeader(77),
    SoleLeader(77, (5, 6)),
    HashedLeaders(_SLOTS),
    HashedLeaders(_SLOTS, _OTHERS),
    ReplicaLeaders((3, 1), 55),
    ReplicaLeaders((), 2),
]
_NAMES = ["sole", "sole_with_others", "hashed", "hashed_with_others", "replica", "no_replica"]
_MODEST = settings(max_examples=12, deadline=None)


def _expected(rule, topic, partition):
    """One partition as the rule makes it, by a second implementation."""
    if isinstance(rule, ReplicaLeaders):
        local = [node for node in rule.order if node in (partition["replica_nodes"] or [])]
        return partition | {"leader_id": local[0]} if local else partition
    if isinstance(rule, HashedLeaders):
        leader = _SLOTS[(crc32((topic["name"] or "").encode()) + partition["partition_index"]) % HASH_SLOTS]
    else:
        leader = rule.leader
    return led(partition, leader, rule.others_of(leader))


def _with(rule, topics):
    return [
        topic | {"partitions": [_expected(rule, topic, partition) for partition in topic["partitions"]]}
        if not topic["error_code"] and some_are_diskless(topic["name"], None)
        else topic
        for topic in topics
    ]


def _preferred(rule, topic, partition):
    if topic["error_code"] or not some_are_diskless(topic["name"], None):
        return []
    if isinstance(rule, ReplicaLeaders):
        return [rule.preferred]
    return [_expected(rule, topic, partition)["leader_id"]]


@pytest.mark.parametrize("rule", _RULES, ids=_NAMES)
@pytest.mark.parametrize("version", [0, 4, 6, 8, 9, 13])
@_MODEST
@given(data=st.data())
def test_metadata(rule, version, data):
    entity = response_type(3, version)
    tree = data.draw(trees(entity))
    buffers = rewrite_metadata_response(
        encode(entity, tree), version, address_of=proxy_address, is_diskless=some_are_diskless, leaders=rule
    )
    brokers = rewritten_nodes(tree["brokers"])
    assert decode_joined(entity, buffers) == tree | {"brokers": brokers, "topics": _with(rule, tree["topics"])}


@pytest.mark.parametrize("rule", _RULES, ids=_NAMES)
@pytest.mark.parametrize("version", [0, 1])
@_MODEST
@given(data=st.data())
def test_describe_topic_partitions(rule, version, data):
    entity = response_type(75, 0)
    tree = data.draw(trees(entity))
    buffers = rewrite_response(encode(entity, tree), version, some_are_diskless, rule)
    assert decode_joined(entity, buffers) == tree | {"topics": _with(rule, tree["topics"])}


@pytest.mark.parametrize("rule", [*_RULES, None], ids=[*_NAMES, "none"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_metadata_v14_is_made_of_v13(rule, data):
    entity = response_type(3, 13)
    tree = data.draw(trees(entity))
    buffers = rewrite_metadata_response(
        encode(entity, tree), 14, address_of=proxy_address, is_diskless=some_are_diskless, leaders=rule
    )
    topics = tree["topics"] if rule is None else _with(rule, tree["topics"])
    expected = [
        topic
        | {
            "is_diskless": not topic["error_code"] and some_are_diskless(topic["name"], None),
            "partitions": [
                partition | {"preferred_produce_brokers": [] if rule is None else _preferred(rule, topic, partition)}
                for partition in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    assert decode_joined(METADATA_RESPONSE, buffers) == tree | {
        "brokers": rewritten_nodes(tree["brokers"]),
        "topics": expected,
    }


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_metadata_request_v14_goes_to_the_broker_as_v13(data):
    tree = data.draw(trees(METADATA_REQUEST))
    body, rack = build_lower_metadata_request(encode(METADATA_REQUEST, tree), 14)
    assert rack == (tree.pop("rack_id") or None)
    assert decode(request_type(3, 13), body) == tree


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_describe_topic_partitions_request_v1_goes_to_the_broker_as_v0(data):
    tree = data.draw(trees(DESCRIBE_TOPIC_PARTITIONS_REQUEST))
    body, rack = build_lower_request(encode(DESCRIBE_TOPIC_PARTITIONS_REQUEST, tree))
    assert rack == (tree.pop("rack_id") or None)
    assert decode(request_type(75, 0), body) == tree


@pytest.mark.parametrize("rule", _RULES, ids=_NAMES)
@pytest.mark.parametrize("partitions", [1, 3, 64, 300])
@pytest.mark.parametrize("odd_one", [None, 1])
def test_topics_of_any_size_alike_or_with_one_that_differs(rule, partitions, odd_one):
    entity = response_type(3, 13)
    listed = [
        {
            "error_code": 5,
            "leader_id": 1,
            "leader_epoch": number * 7,
            "partition_index": partitions - number,
            "replica_nodes": [[1, 2, 4], [2, 4, 3], [5, 6, 7]][number % 3],
            "isr_nodes": [1, 2],
            "offline_replicas": [],
        }
        for number in range(partitions)
    ]
    if odd_one is not None:
        listed[odd_one % partitions] |= {"isr_nodes": [2], "offline_replicas": [1], UNKNOWN_TAGS: {9: b"kept"}}
    topic = {"error_code": 0, "topic_id": bytes(16), "is_internal": False, "topic_authorized_operations": 0}
    topics = [topic | {"name": name, "partitions": listed} for name in ("diskless", "classic", "disklesss2")]
    tree = {"throttle_time": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "topics": topics}
    tree["error_code"] = 0
    body = encode(entity, tree)
    for version in (13, 14):
        buffers = rewrite_metadata_response(
            body, version, address_of=proxy_address, is_diskless=some_are_diskless, leaders=rule
        )
        read = decode_joined(METADATA_RESPONSE if version == 14 else entity, buffers)
        for topic_read, expected in zip(read["topics"], _with(rule, topics), strict=True):
            for partition in topic_read["partitions"]:
                partition.pop("preferred_produce_brokers", None)
            assert topic_read["partitions"] == expected["partitions"]
