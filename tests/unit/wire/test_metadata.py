"""Metadata: only addresses and leaders change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.metadata import (
    build_metadata_request,
    encode_metadata_request,
    metadata_brokers,
    metadata_cluster_id,
    metadata_topics,
    parse_metadata_request,
    rewrite_metadata_response,
    with_topic_errors,
)
from proxy.wire.partition_leaders import SoleLeader
from tests.unit.wire.kafka_python import MetadataResponse
from tests.unit.wire.trees import decode, decode_joined, encode, request_type, response_type, trees

_VERSIONS = range(14)
_MODEST = settings(max_examples=10, deadline=None)
LEADER = 77


def proxy_address(node_id):
    """Nodes with an even ID are named by another address, the others are not."""
    return None if node_id % 2 else (f"proxy-{node_id}", node_id % 50000)


def rewritten_nodes(nodes, id_name="node_id"):
    return [
        node | {"host": proxy_address(node[id_name])[0], "port": proxy_address(node[id_name])[1]}
        for node in nodes
        if proxy_address(node[id_name])
    ]


def led(partition, leader=LEADER, others=()):
    replicas = [leader, *others]
    changed = {"error_code": 0, "leader_id": leader, "replica_nodes": replicas, "isr_nodes": replicas}
    emptied = {"offline_replicas", "eligible_leader_replicas", "last_known_elr"} & partition.keys()
    return partition | changed | {name: [] for name in emptied}


def with_leaders(topics, is_diskless):
    return [
        topic | {"partitions": [led(partition) for partition in topic["partitions"]]}
        if not topic["error_code"] and is_diskless(topic["name"], topic.get("topic_id"))
        else topic
        for topic in topics
    ]


def some_are_diskless(name, topic_id):
    return len(name or "") % 2 == 0


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_addresses_and_leaders_are_rewritten_and_nothing_else(version, data):
    entity = response_type(3, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    brokers = rewritten_nodes(tree["brokers"])
    buffers = rewrite_metadata_response(
        body, version, address_of=proxy_address, is_diskless=None, leaders=SoleLeader(LEADER)
    )
    assert decode_joined(entity, buffers) == tree | {"brokers": brokers}
    buffers = rewrite_metadata_response(
        body, version, address_of=proxy_address, is_diskless=some_are_diskless, leaders=SoleLeader(LEADER)
    )
    topics = with_leaders(tree["topics"], some_are_diskless)
    assert decode_joined(entity, buffers) == tree | {"brokers": brokers, "topics": topics}


@pytest.mark.parametrize("partitions", [1, 2, 3, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("odd_one", [None, 0, 1, -1])
def test_topics_of_any_size_alike_or_with_one_that_differs(partitions, odd_one):
    entity = response_type(3, 12)
    nodes = {"isr_nodes": [1, 2, 3], "replica_nodes": [1, 2, 3], "offline_replicas": []}
    shape = {"error_code": 5, "leader_id": 1, **nodes}
    listed = [shape | {"partition_index": 70000 + n, "leader_epoch": n * 7} for n in range(partitions)]
    if odd_one is not None:
        listed[odd_one % partitions] |= {"isr_nodes": [2, 3], "offline_replicas": [1], "unknown tags": {9: b"kept"}}
    topic = {"error_code": 0, "topic_id": bytes(16), "is_internal": False, "topic_authorized_operations": 0}
    topics = [topic | {"name": name, "partitions": listed} for name in ("diskless", "classic", "diskless-2")]
    tree = {"throttle_time": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "topics": topics}
    buffers = rewrite_metadata_response(
        encode(entity, tree),
        12,
        address_of=proxy_address,
        is_diskless=lambda name, topic_id: name.startswith("diskless"),
        leaders=SoleLeader(LEADER),
    )
    expected = with_leaders(topics, lambda name, topic_id: name.startswith("diskless"))
    assert decode_joined(entity, buffers) == tree | {"topics": expected}


def test_without_diskless_topics_the_rest_is_one_slice():
    entity = response_type(3, 12)
    broker = {"node_id": 2, "host": "inside", "port": 9092, "rack": "a"}
    tree = {"throttle_time": 0, "brokers": [broker], "cluster_id": "c", "controller_id": 2, "topics": []}
    body = encode(entity, tree)
    *_, rest = rewrite_metadata_response(
        body, 12, address_of=proxy_address, is_diskless=None, leaders=SoleLeader(LEADER)
    )
    assert rest.obj is body


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_brokers_and_topics_are_read(version, data):
    entity = response_type(3, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    assert metadata_brokers(body, version) == [
        (broker["node_id"], broker["host"], broker["port"], broker.get("rack")) for broker in tree["brokers"]
    ]
    assert metadata_topics(body, version) == [
        (
            topic["error_code"],
            topic["name"],
            topic.get("topic_id"),
            len(topic["partitions"]),
            topic.get("topic_authorized_operations", -(2**31)),
        )
        for topic in tree["topics"]
    ]
    if version >= 2:
        assert metadata_cluster_id(body, version) == tree["cluster_id"]


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_requests_are_parsed_and_encoded_again(version, data):
    entity = request_type(3, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    request = parse_metadata_request(body, version)
    if tree["topics"] is None or (version == 0 and not tree["topics"]):
        assert request.topics is None
    else:
        assert [topic.name for topic in request.topics] == [topic["name"] for topic in tree["topics"]]
        assert [topic.topic_id for topic in request.topics] == [
            topic.get("topic_id", bytes(16)) for topic in tree["topics"]
        ]
    assert request.allow_auto_topic_creation == tree.get("allow_auto_topic_creation", True)
    assert request.include_topic_authorized_operations == tree.get("include_topic_authorized_operations", False)
    assert encode_metadata_request(request) == body


@pytest.mark.parametrize("version", _VERSIONS)
@pytest.mark.parametrize("names", [None, ["one", "two"]])
def test_the_proxys_own_requests_never_create_topics(version, names):
    tree = decode(request_type(3, version), build_metadata_request(version, names, topic_authorized_operations=True))
    assert tree.get("allow_auto_topic_creation", False) is False
    assert tree.get("include_topic_authorized_operations", True) is True
    all_topics = [] if version == 0 else None
    assert (tree["topics"] and [topic["name"] for topic in tree["topics"]]) == (names or all_topics)


@pytest.mark.parametrize("version", _VERSIONS)
def test_kafka_python_reads_rewritten_responses(version):
    partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=5,
        partition_index=0,
        leader_id=-1,
        leader_epoch=3,
        replica_nodes=[2, 4],
        isr_nodes=[],
        offline_replicas=[2, 4],
    )
    topic = MetadataResponse.MetadataResponseTopic(error_code=0, name="ab", partitions=[partition])
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=node, host="inside", port=9092, rack=None) for node in (2, 4)
    ]
    response = MetadataResponse(version=version, brokers=brokers, controller_id=2, topics=[topic])
    buffers = rewrite_metadata_response(
        response.encode(), version, address_of=proxy_address, is_diskless=some_are_diskless, leaders=SoleLeader(4)
    )
    read = MetadataResponse.decode(b"".join(buffers), version=version)
    assert [(broker.host, broker.port) for broker in read.brokers] == [("proxy-2", 2), ("proxy-4", 4)]
    (partition,) = read.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, 4)
    assert (partition.replica_nodes, partition.isr_nodes) == ([4], [4])


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_errors_of_topics_are_replaced_by_name_and_nothing_else(version, data):
    entity = response_type(3, version)
    tree = data.draw(trees(entity))
    names = sorted({topic["name"] for topic in tree["topics"] if topic["name"] is not None})
    errors = dict.fromkeys(data.draw(st.sets(st.sampled_from(names))) if names else (), 29)
    body = with_topic_errors(encode(entity, tree), version, errors)
    topics = [topic | {"error_code": errors.get(topic["name"], topic["error_code"])} for topic in tree["topics"]]
    assert decode(entity, body) == tree | {"topics": topics}
