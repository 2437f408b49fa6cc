"""Pieces of several answers become one, in the order and within the limits of the request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.fetching.answer import CLASSIC, DISKLESS, Answer, Piece, cut, empty_response, merge, piece_of
from proxy.fetching.asked import keys_of
from proxy.wire.fetch import PartitionFetch, TopicFetch
from proxy.wire.fetch_response import PartitionFetched, TopicFetched, build_fetch_response, parse_fetch_response
from proxy.wire.fetch_walk import walk_fetch_response
from proxy.wire.primitives import write_tags
from proxy.wire.steps import at_once


def batch(size: int) -> bytes:
    return bytes(8) + (size - 12).to_bytes(4, "big") + b"r" * (size - 12)


def fetched(index: int, records: bytes = b"", aborted=None) -> PartitionFetched:
    return PartitionFetched(index, 0, 9, 9, 0, (records,) if records else (), len(records), aborted)


def encoded(partition: PartitionFetched, version: int) -> Piece:
    """Encode a broker's answer."""
    topic = "t" if version < 13 else bytes(16)
    body = b"".join(build_fetch_response(version, 0, [TopicFetched(topic, [partition])]))
    walk = walk_fetch_response(body, version)
    (at,) = walk.topics[0].partitions
    return Piece(0, at.record_bytes, [walk.body[at.start : at.end]])


def asked(*names: tuple[str | bytes, int]) -> list[TopicFetch]:
    return [TopicFetch(topic, [PartitionFetch(index, -1, 0, -1, -1, 1)]) for topic, index in names]


def joined(version: int, buffers):
    return parse_fetch_response(b"".join(buffers), version)


@pytest.mark.parametrize("version", range(4, 19))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_pieces_stand_in_the_order_of_the_request(version, data):
    names = [("a", 0), ("b", 0), ("a", 1), ("c", 7)]
    if version >= 13:
        names = [(topic.encode() * 16, index) for topic, index in names]
    order = data.draw(st.permutations(names))
    answered = data.draw(st.lists(st.sampled_from(names), unique=True))
    partitions = {
        (topic, index): fetched(
            index, data.draw(st.sampled_from([b"", batch(30)])), data.draw(st.sampled_from([None, ()]))
        )
        for topic, index in answered
    }
    own = data.draw(st.sets(st.sampled_from(names)))
    pieces = {key: piece_of(one) if key in own else encoded(one, version) for key, one in partitions.items()}
    response = joined(version, merge(version, asked(*order), pieces, [], 33))
    assert (response.throttle_ms, response.error_code, response.session_id) == (33, 0, 0)
    assert [(topic.topic, topic.partitions[0].index) for topic in response.topics] == [
        key for key in order if key in pieces
    ]
    for topic in response.topics:
        (one,) = topic.partitions
        expected = partitions[topic.topic, one.index]
        log_start = -1 if version < 5 else 0
        aborted = expected.aborted if expected.aborted is None else []
        assert one._replace(records=()) == expected._replace(records=(), log_start_offset=log_start, aborted=aborted)
        assert b"".join(one.records) == b"".join(expected.records)


def test_a_brokers_error_and_its_endpoints_are_returned():
    tail = write_tags([(0, b"\1")])
    answers = [
        Answer(DISKLESS, "a", True, {}, 0, False),
        Answer(CLASSIC, "b", False, {}, 0, True, 5, 70, tail),
    ]
    body = b"".join(merge(16, [], {}, answers, 5))
    walk = walk_fetch_response(body, 16)
    assert (walk.error_code, bytes(walk.body[walk.tail :])) == (70, tail)


@pytest.mark.parametrize("version", range(4, 19))
def test_an_empty_response_holds_the_time_only(version):
    assert joined(version, empty_response(version, 44)) == (44, 0, 0, [])


@pytest.mark.parametrize("version", [4, 11, 12])
@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.lists(st.integers(20, 90), max_size=3), max_size=5), max_bytes=st.integers(0, 500))
def test_records_above_the_limit_are_cut_as_one_broker_would(version, sizes, max_bytes):
    partitions = {("t", index): fetched(index, b"".join(map(batch, of))) for index, of in enumerate(sizes)}
    pieces = {key: encoded(one, version) for key, one in partitions.items()}
    keys = keys_of(asked(*partitions))
    left, first = max_bytes, True
    kept = at_once(cut(version, asked(*keys), pieces, max_bytes))
    response = joined(version, merge(version, asked(*keys), kept, [], 0))
    for (index, of), topic in zip(enumerate(sizes), response.topics, strict=True):
        whole = b"".join(partitions["t", index].records)
        size = min(len(whole), max(left, of[0]) if first and of else left)
        if of and size < of[0]:
            size = 0  # of records without a whole batch Java's consumer thinks that they are damaged
        records = b"".join(topic.partitions[0].records)
        assert records == whole[:size]
        assert (kept["t", index].record_bytes, topic.partitions[0].high_watermark) == (size, 9)
        left, first = max(left - size, 0), first and not size
    if sum(map(sum, sizes)) <= max_bytes:
        assert kept is pieces
    assert [piece.record_bytes for piece in pieces.values()] == list(map(sum, sizes))
