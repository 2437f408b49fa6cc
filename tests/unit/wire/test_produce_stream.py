"""The records of a Produce request are counted by topic as it passes, in whatever pieces it arrives."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import cycle
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.produce_prefix import client_id_of_prefix, read_only_topic, read_produce_prefix
from proxy.wire.produce_stream import ProduceStream, count_produced
from tests.unit.wire.kafka_python import ProduceRequest
from tests.unit.wire.trees import encode, request_type, trees, varint

_MODEST = settings(max_examples=10, deadline=None)
_OLD_FIELDS = {"transactional_id": None, "acks": 1, "timeout_ms": 1000}


class Counts(Counter):
    """Counts of each topic."""

    def __call__(self, topic, size):
        self[topic] += size


def frame_of(body, version, client_id=b"app", tags=b"\0"):
    header = struct.pack(">hhih", 0, version, 7, len(client_id)) + client_id
    return header + (tags if version >= 9 else b"") + body


def in_pieces(frame, version, sizes):
    """Stream the frame, after its size, in pieces; return the counts."""
    prefix = read_produce_prefix(memoryview(frame), version)
    counts = Counts()
    stream = ProduceStream(version, counts, begins_at=4 + prefix.topics_at)
    sent, at = memoryview(struct.pack(">i", len(frame)) + frame), 0
    for size in cycle(sizes):
        if at >= len(sent):
            break
        stream.feed(sent[at : at + size])
        at += size
    stream.count()
    return counts, stream


def at_once(frame, version):
    counts = Counts()
    view = memoryview(frame)
    count_produced(view, read_produce_prefix(view, version).topics_at, version, counts)
    return counts


def of_tree(tree):
    """Return the expected counts of a message."""
    counts = Counts()
    for topic in tree["topic_data"]:
        size = sum(len(partition["records"] or b"") for partition in topic["partition_data"])
        counts(topic.get("topic_id", topic.get("name")), size)
    return +counts


_SIZES = st.lists(st.integers(1, 30) | st.integers(100, 9000), min_size=1, max_size=5)


@pytest.mark.parametrize("version", range(3, 14))
@_MODEST
@given(data=st.data())
def test_any_pieces_count_what_the_message_holds(version, data):
    entity = request_type(0, version)
    tree = data.draw(trees(entity))
    frame = frame_of(encode(entity, tree), version, data.draw(st.binary(max_size=40)))
    counts, stream = in_pieces(frame, version, data.draw(_SIZES))
    assert counts == at_once(frame, version) == of_tree(tree)
    assert stream.ended
    assert read_produce_prefix(memoryview(frame), version).acks == tree["acks"]


_REQUEST = ProduceRequest.TopicProduceData
_PARTITIONS = st.lists(st.none() | st.binary(min_size=1, max_size=200), min_size=1, max_size=4)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 5, 7, 8, 9, 12])
@_MODEST
@given(
    topics=st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1, max_size=30), _PARTITIONS, max_size=4),
    sizes=_SIZES,
)
def test_requests_of_kafka_python_are_counted(version, topics, sizes):
    data = [
        _REQUEST(
            name=name,
            partition_data=[
                _REQUEST.PartitionProduceData(index=index, records=records) for index, records in enumerate(partitions)
            ],
        )
        for name, partitions in topics.items()
    ]
    body = bytes(ProduceRequest(topic_data=data, **_OLD_FIELDS).encode(version=version))
    frame = frame_of(body, version)
    expected = Counts({name: sum(len(one or b"") for one in partitions) for name, partitions in topics.items()})
    assert in_pieces(frame, version, sizes)[0] == +expected
    assert at_once(frame, version) == +expected


def one_batch(version, size=50_000):
    data = _REQUEST(
        name="orders",
        topic_id=UUID(bytes=bytes(range(16))),
        partition_data=[_REQUEST.PartitionProduceData(index=0, records=bytes(size))],
    )
    return frame_of(bytes(ProduceRequest(topic_data=[data], **_OLD_FIELDS).encode(version=version)), version)


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("sizes", [[300], [10_000], [70, 5]])
def test_a_request_that_stops_in_its_records_is_counted_as_far_as_it_came(version, sizes):
    frame = one_batch(version)
    missing = len(frame) - 1000 - (3 if version >= 9 else 0)
    topic = bytes(range(16)) if version == 13 else "orders"
    assert in_pieces(frame[:1000], version, sizes)[0] == {topic: 50_000 - missing}
    assert at_once(frame[:1000], version) == {topic: 50_000 - missing}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_bytes_after_the_topics_are_ignored(version):
    frame = one_batch(version)
    topic = bytes(range(16)) if version == 13 else "orders"
    assert at_once(frame + bytes(100), version) == {topic: 50_000}
    assert in_pieces(frame + bytes(100), version, [40_000])[0] == {topic: 50_000}


@pytest.mark.parametrize(
    "topics",
    [
        varint(2) + varint(7) + b"orders" + varint(2) + bytes(4) + b"\xff\xff\xff\xff\xff",
        varint(2) + varint(2) + b"\xff" + varint(2) + bytes(4) + varint(4) + b"abc" + bytes(3),
        varint(2) + varint(70_000) + bytes(66_000),
    ],
    ids=["an endless length", "a name that is no text", "a name that is too long"],
)
def test_unreadable_bytes_only_end_the_counting(topics):
    frame = frame_of(b"\0" + bytes(6) + topics, 9)
    counts, stream = in_pieces(frame, 9, [1000])
    assert counts == at_once(frame, 9)
    assert counts in ({}, {"\ufffd": 3})
    assert stream.ended


@_MODEST
@given(data=st.data())
def test_damaged_requests_raise_nothing(data):
    version = data.draw(st.sampled_from([0, 3, 8, 9, 13]))
    body = bytearray(one_batch(version, 200))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(13, len(body) - 1))] = data.draw(st.integers(0, 255))
    frame = bytes(body[: data.draw(st.integers(13, len(body)))])
    if read_produce_prefix(memoryview(frame), version) is not None:
        in_pieces(frame, version, data.draw(_SIZES))
        at_once(frame, version)


@pytest.mark.parametrize("version", range(14))
@given(client_id=st.binary(max_size=300), tags=st.dictionaries(st.integers(0, 300), st.binary(max_size=9), max_size=3))
@_MODEST
def test_the_beginning_is_read_as_soon_as_it_arrives(version, client_id, tags):
    section = varint(len(tags)) + b"".join(varint(tag) + varint(len(one)) + one for tag, one in tags.items())
    request = ProduceRequest(topic_data=[], **_OLD_FIELDS | {"transactional_id": "t" * 20 if version >= 3 else None})
    body = bytes(request.encode(version=version))
    frame = memoryview(frame_of(body, version, client_id, section))
    topics_at = len(frame) - (2 if version >= 9 else 4)
    assert read_produce_prefix(frame, version) == (1, topics_at)
    for length in range(10 + len(client_id), topics_at - 4):
        assert read_produce_prefix(frame[:length], version) is None
    assert client_id_of_prefix(frame) == str(client_id, "utf-8", "replace")


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize(
    ("names", "only"),
    [
        (("orders",), True),
        (("o" * 126,), True),
        (("o" * 127,), True),
        (("o" * 249,), True),
        (("o" * 250,), False),
        (("",), False),
        ((), False),
        (("orders", "payments"), False),
        (("orders", "orders"), False),
        (("orders",) * 200, False),
    ],
)
def test_the_only_topic_is_read_as_soon_as_it_arrives(version, names, only):
    ids = [UUID(int=index + 1) for index in range(len(names))]
    partitions = [_REQUEST.PartitionProduceData(index=0, records=bytes(100))]
    data = [
        _REQUEST(name=name, topic_id=topic_id, partition_data=partitions)
        for name, topic_id in zip(names, ids, strict=True)
    ]
    frame = frame_of(bytes(ProduceRequest(topic_data=data, **_OLD_FIELDS).encode(version=version)), version)
    at = read_produce_prefix(memoryview(frame), version).topics_at
    topic = ids[0].bytes if version >= 13 and len(ids) == 1 else names[0] if version < 13 and only else None
    assert read_only_topic(memoryview(frame), at, version) == topic
    found = [of_cut(frame[:length], at, version) for length in range(at, len(frame) + 1)]
    first = found.index(topic)
    assert set(found[:first]) <= {"more"}
    assert set(found[first:]) <= {topic}
    name_ends = frame.index(topic if isinstance(topic, bytes) else topic.encode()) + len(topic) if topic else at + 8
    assert first <= name_ends - at


def of_cut(frame, at, version):
    """Return the only topic, None, or "more" if more bytes are needed."""
    try:
        return read_only_topic(memoryview(frame), at, version)
    except (IndexError, struct.error):
        return "more"


@pytest.mark.parametrize("version", [0, 3, 8, 9, 12, 13])
@given(topics=st.binary(max_size=40))
@_MODEST
def test_no_bytes_lead_to_another_error(version, topics):
    frame = frame_of(bytes(6), version)
    try:
        topic = of_cut(frame + topics, len(frame), version)
    except ProtocolError:
        return
    assert topic in (None, "more") or (topic if version >= 13 else topic.encode()) in topics


def test_a_name_that_is_no_text_is_not_read():
    assert read_only_topic(memoryview(varint(2) + varint(3) + b"\xff\xfe"), 0, 9) is None


def test_a_beginning_with_very_many_tagged_fields_is_not_read_through():
    frame = frame_of(b"\0" + bytes(6), 9, tags=varint(60_000) + bytes(120_000))
    assert read_produce_prefix(memoryview(frame), 9) is None
