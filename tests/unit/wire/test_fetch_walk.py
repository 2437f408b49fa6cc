"""The walk over a Fetch response finds every piece, and the pieces fit into a response of another version."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.fetch_response import parse_fetch_response
from proxy.wire.fetch_walk import LOWERED_FROM, has_no_tail, lowered, piece, response_tail, walk_fetch_response
from tests.unit.wire.trees import decode_joined, encode, response_type, trees

_MODEST = settings(max_examples=8, deadline=None)
_VERSIONS = range(4, 19)


def _partitions(response):
    return [(topic.topic, one) for topic in response.topics for one in topic.partitions]


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data())
def test_a_walk_finds_what_parsing_finds(version, data):
    body = encode(response_type(1, version), data.draw(trees(response_type(1, version))))
    walk, parsed = walk_fetch_response(body, version), parse_fetch_response(body, version)
    assert (walk.throttle_ms, walk.error_code, walk.session_id) == parsed[:3]
    walked = [(topic, at) for topic, partitions in walk.topics for at in partitions]
    assert len(walked) == len(_partitions(parsed))
    for (topic, at), (same_topic, one) in zip(walked, _partitions(parsed), strict=True):
        assert topic == same_topic
        assert (at.index, at.error_code, at.high_watermark) == one[:3]
        assert bytes(walk.body[at.records : at.records + at.record_bytes]) == b"".join(one.records)
        if one.preferred_read_replica != -1:
            assert not at.plain
    ends = [at for _, partitions in walk.topics for at in partitions]
    assert all(one.end <= following.start for one, following in pairwise(ends))
    assert bytes(response_tail(walk)) == body[walk.tail :]
    assert has_no_tail(walk) == (body[walk.tail :] == (b"\0" if version >= 12 else b""))


@pytest.mark.parametrize("version", _VERSIONS)
@_MODEST
@given(data=st.data(), ends=st.tuples(st.integers(0, 2**60), st.integers(0, 2**60)))
def test_a_piece_with_other_ends_is_otherwise_the_same(version, data, ends):
    body = encode(response_type(1, version), data.draw(trees(response_type(1, version))))
    walk = walk_fetch_response(body, version)
    changed, at = bytearray(body), 0
    for _, partitions in walk.topics:
        for at in partitions:
            assert (
                b"".join(piece(walk, at, version, (at.high_watermark, at.last_stable_offset)))
                == body[at.start : at.end]
            )
            changed[at.start : at.end] = b"".join(piece(walk, at, version, ends))
    assert len(changed) == len(body)
    parsed = _partitions(parse_fetch_response(body, version))
    assert _partitions(parse_fetch_response(bytes(changed), version)) == [
        (topic, one._replace(high_watermark=ends[0], last_stable_offset=ends[1])) for topic, one in parsed
    ]


@pytest.mark.parametrize("version", range(4, LOWERED_FROM))
@_MODEST
@given(data=st.data(), newer=st.integers(LOWERED_FROM, 18))
def test_topics_with_ids_become_an_older_version(version, newer, data):
    tree = data.draw(trees(response_type(1, newer), "none"))
    for topic in tree["responses"]:
        for partition in topic["partitions"]:
            partition["preferred_read_replica"] = -1
    walk = walk_fetch_response(encode(response_type(1, newer), tree), newer)
    names = {topic["topic_id"]: f"t{number}" for number, topic in enumerate(tree["responses"])}
    walk = walk._replace(topics=[topic._replace(topic=names[topic.topic]) for topic in walk.topics])
    gone = {"preferred_read_replica"} if version < 11 else set()
    gone |= {"log_start_offset"} if version < 5 else set()
    tree["responses"] = [
        {
            "topic": names[topic["topic_id"]],
            "partitions": [
                {name: value for name, value in partition.items() if name not in gone}
                for partition in topic["partitions"]
            ],
        }
        for topic in tree["responses"]
    ]
    if version < 7:
        del tree["session_id"], tree["error_code"]
    else:
        tree["session_id"] = tree["error_code"] = 0
    expected = encode(response_type(1, version), tree)
    assert b"".join(lowered(walk, version)) == expected
    assert decode_joined(response_type(1, version), lowered(walk, version)) == tree
    for _, partitions in walk.topics:
        for at in partitions:
            assert b"".join(piece(walk, at, version, (at.high_watermark, at.last_stable_offset))) in expected


def test_other_versions_are_not_lowered():
    walk = walk_fetch_response(bytes(4 + 6 + 4), 11)
    with pytest.raises(ProtocolError):
        lowered(walk, 9)


@pytest.mark.parametrize("version", _VERSIONS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_cut_or_changed_bytes_are_read_or_rejected(version, data):
    body = bytearray(encode(response_type(1, version), data.draw(trees(response_type(1, version)))))
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    try:
        walk = walk_fetch_response(bytes(body), version)
    except ProtocolError:
        return
    for _, partitions in walk.topics:
        assert all(at.start <= at.records <= at.records + at.record_bytes <= at.end <= len(body) for at in partitions)
