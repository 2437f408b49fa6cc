"""A Fetch response that streams through keeps its length, loses no record, and names no broker's own address."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response
from proxy.wire.fetch_stream import HELD_BYTES_MAX, FetchEndpointStream, count_plain
from tests.unit.wire.kafka_python import FetchResponse
from tests.unit.wire.trees import UNKNOWN_TAGS, decode, encode, response_type, trees, varint

_MODEST = settings(max_examples=10, deadline=None)
_FILLER = range(120, 128)


def _told(host):
    return lambda node_id: None if node_id % 2 else (host, node_id % 50000)


def _pass(body, version, sizes, host="h"):
    """The output for chunks of the sizes, in turn; each byte must come out as early as it may."""
    topics = Counter()
    stream = FetchEndpointStream(version, _told(host), lambda topic, size: topics.update({topic: size}))
    out, at, turn = [], 0, 0
    while at < len(body):
        size = sizes[turn % len(sizes)]
        out.append(b"".join(stream.feed(memoryview(body)[at : at + size])))
        at, turn = at + size, turn + 1
    stream.finish()
    assert stream.ended
    assert topics.total() == stream.record_bytes
    return b"".join(out), topics


@pytest.mark.parametrize("version", range(4, 19))
@_MODEST
@given(data=st.data())
def test_any_chunks_give_what_the_whole_gives(version, data):
    entity = response_type(1, version)
    tree = data.draw(trees(entity))
    body = encode(entity, tree)
    host = data.draw(st.sampled_from(["", "h", "proxy-a", "h" * 130]))
    whole, topics = _pass(body, version, [len(body)], host)
    assert len(whole) == len(body)
    sizes = data.draw(st.lists(st.integers(1, 40) | st.integers(100, 9000), min_size=1, max_size=5))
    assert _pass(body, version, sizes, host) == (whole, topics)
    expected = Counter()
    for topic in tree["responses"]:
        size = sum(len(partition["records"] or b"") for partition in topic["partitions"])
        expected[topic.get("topic_id", topic.get("topic"))] += size
    assert topics == +expected
    read = decode(entity, whole)
    endpoints = read.pop("node_endpoints", [])
    sent = tree.pop("node_endpoints", [])
    unknown, known = read.pop(UNKNOWN_TAGS, {}), tree.pop(UNKNOWN_TAGS, {})
    assert {tag: value for tag, value in unknown.items() if tag in known or tag not in _FILLER} == known
    assert read == tree
    rewritten = [node | {"host": host, "port": node["node_id"] % 50000} for node in sent if node["node_id"] % 2 == 0]
    assert endpoints in ([], rewritten)


def _with_endpoints(hosts, partitions=()):
    nodes = [{"node_id": 2 * n, "host": host, "port": 9092, "rack": "rack-a"} for n, host in enumerate(hosts)]
    responses = [{"topic_id": bytes(16), "partitions": list(partitions)}]
    return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses, "node_endpoints": nodes}


@pytest.mark.parametrize("inside", [0, 1, 2, 3, 4, 90, 100, 105, 106, 107, 108, 109, 110, 111, 112, 113, 125, 200, 300])
@pytest.mark.parametrize("outside", [0, 1, 2, 100, 109, 110, 111, 112, 200])
def test_the_length_stays_whatever_the_hosts(inside, outside):
    entity = response_type(1, 16)
    body = encode(entity, _with_endpoints(["i" * inside]))
    out, _ = _pass(body, 16, [len(body)], "o" * outside)
    assert len(out) == len(body)
    read = decode(entity, out)
    hosts = [node["host"] for node in read.get("node_endpoints", [])]
    assert hosts in ([], ["o" * outside])
    if inside == outside:
        assert hosts == ["o" * outside]
    assert b"iii" not in out


def test_shorter_addresses_are_rewritten_and_longer_ones_left_out():
    entity = response_type(1, 17)
    body = encode(entity, _with_endpoints(["broker-1.kafka.svc.cluster.local", "broker-2.kafka.svc.cluster.local"]))
    shorter, _ = _pass(body, 17, [7], "proxy-a")
    assert [node["host"] for node in decode(entity, shorter)["node_endpoints"]] == ["proxy-a", "proxy-a"]
    longer, _ = _pass(body, 17, [7], "diskless-proxy.rack-a.kafka.svc.cluster.local")
    assert "node_endpoints" not in decode(entity, longer)


@pytest.mark.parametrize("host", ["proxy-a", "a-much-longer-name.example"])
def test_kafka_python_skips_the_filler(host):
    partition = {
        "partition_index": 3,
        "error_code": 6,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "current_leader": {"leader_id": 2, "leader_epoch": 7},
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"batches",
    }
    body = encode(response_type(1, 16), _with_endpoints(["broker-1.local"], [partition]))
    out, _ = _pass(body, 16, [11], host)
    read = FetchResponse.decode(out, version=16)
    assert bytes(read.responses[0].partitions[0].records) == b"batches"
    assert read.responses[0].partitions[0].current_leader.leader_id == 2


def test_many_unknown_tags_leave_room_for_the_filler():
    # One field more would need a second byte for their number.
    entity = response_type(1, 16)
    tree = _with_endpoints(["broker-1.example.com"]) | {UNKNOWN_TAGS: dict.fromkeys(range(1, 127), b"")}
    body = encode(entity, tree)
    assert len(_pass(body, 16, [50], "p")[0]) == len(body)


def test_records_are_given_on_as_they_come():
    entity = response_type(1, 16)
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": bytes(1 << 20),
    }
    body = encode(entity, _with_endpoints([], [partition]))
    stream = FetchEndpointStream(16, _told("h"))
    first = memoryview(body)[: 1 << 19]
    (given,) = stream.feed(first)
    assert given.obj is body
    assert len(given) == len(first)
    assert not stream.ended
    assert sum(map(len, stream.feed(memoryview(body)[1 << 19 :]))) == len(body) - (1 << 19)
    assert stream.ended


def test_bytes_after_the_response_pass():
    entity = response_type(1, 16)
    body = encode(entity, _with_endpoints(["broker-1.local"]))
    stream = FetchEndpointStream(16, _told("h"))
    out = b"".join([*stream.feed(body + b"be"), *stream.feed(b"hind")])
    assert len(out) == len(body) + 6
    assert out.endswith(b"behind")


def test_a_frame_that_ends_too_early_is_reported():
    body = encode(response_type(1, 16), _with_endpoints(["broker-1.local"]))
    for size in range(len(body)):
        stream = FetchEndpointStream(16, _told("h"))
        stream.feed(body[:size])
        with pytest.raises(ProtocolError, match="too early"):
            stream.finish()


def test_only_what_has_nothing_to_rewrite_is_plain():
    entity = response_type(1, 16)
    counted = Counter()

    def plain(tree):
        body = encode(entity, tree)
        return count_plain(memoryview(body), len(body), 16, lambda topic, size: counted.update({topic: size}))

    partition = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"batches",
    }
    without = {key: value for key, value in _with_endpoints([], [partition]).items() if key != "node_endpoints"}
    assert not plain(_with_endpoints(["broker-1.local"], [partition]))
    assert not plain(without | {UNKNOWN_TAGS: {3: b"x"}})
    assert not plain(_with_endpoints([], [partition | {UNKNOWN_TAGS: {9: b"x"}}]))
    assert not counted
    assert plain(without)
    assert counted == {bytes(16): 7}
    many = {**without, "responses": [{"topic_id": bytes(16), "partitions": [partition] * 3}]}
    assert plain(many)
    assert counted == {bytes(16): 28}


@pytest.mark.parametrize("version", [4, 5, 7, 11, 12, 13, 18])
def test_one_partition_is_counted_from_the_beginning_of_the_answer(version):
    records = bytes(50_000)
    topic = bytes(16) if version >= 13 else "orders"
    answer = [TopicFetched(topic, [PartitionFetched(0, 0, 5, 5, 0, [records], len(records))])]
    body = b"".join(build_fetch_response(version, 0, answer))
    counted = Counter()

    def plain(head, size):
        return count_plain(memoryview(head), size, version, lambda topic, size: counted.update({topic: size}))

    assert not plain(body[:100], len(body) + 1)
    assert not plain(body[:20], len(body))
    assert not counted
    assert plain(body[:100], len(body))
    assert counted == {topic: 50_000}


@pytest.mark.parametrize("version", [4, 7, 11, 12, 15])
def test_before_v16_what_can_not_be_read_passes(version):
    head = bytes(10 if version >= 7 else 4)
    body = head + (b"\xff" * 5 if version >= 12 else b"\xff\xff\xff\x00") + b"whatever comes"
    stream = FetchEndpointStream(version, _told("h"))
    assert b"".join(part for at in range(0, len(body), 3) for part in stream.feed(body[at : at + 3])) == body
    stream.finish()
    assert not count_plain(memoryview(body), len(body), version, lambda topic, size: None)


_ENDLESS_TAG = bytes(10) + b"\x01" + varint(1) + varint(0) + varint(1 << 30)
_ENDLESS_ABORTED = bytes(10) + b"\x02" + bytes(16) + b"\x02" + bytes(30) + varint(1 << 27)


@pytest.mark.parametrize(("start", "message"), [(_ENDLESS_TAG, "exceed"), (_ENDLESS_ABORTED, "before records")])
def test_the_held_bytes_are_bounded(start, message):
    stream = FetchEndpointStream(16, _told("h"))
    stream.feed(start + bytes(HELD_BYTES_MAX - 1000))
    with pytest.raises(ProtocolError, match=message):
        stream.feed(bytes(1001))


@_MODEST
@given(data=st.data())
def test_damaged_responses_pass_or_raise_the_one_error(data):
    version = data.draw(st.sampled_from([4, 11, 12, 16, 18]))
    entity = response_type(1, version)
    body = bytearray(encode(entity, data.draw(trees(entity))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    stream = FetchEndpointStream(version, _told("h"))
    given = 0
    try:
        for at in range(0, len(body), 500):
            given += sum(map(len, stream.feed(bytes(body[at : at + 500]))))
        stream.finish()
    except ProtocolError:
        assert given <= len(body)
    else:
        assert given == len(body)
