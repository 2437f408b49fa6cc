"""A request of many tiny elements is rejected before any of them costs anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.client.request import Request
from proxy.handlers.create_topics import CreateTopics
from proxy.wire import primitives
from proxy.wire.cold import read_request
from proxy.wire.describe_topic_partitions import build_lower_request
from proxy.wire.errors import ProtocolError, TooManyElements
from proxy.wire.fetch import parse_fetch_request
from proxy.wire.metadata import parse_metadata_request
from proxy.wire.primitives import read_tags, skip_tags
from proxy.wire.produce import parse_produce_request
from proxy.wire.steps import at_once
from tests.unit.creation.made import auto_creation_of

MOST = 20
FETCH_HEAD = bytes(4 * 3 + 4 + 1 + 8)
"""Replica, wait, bytes, isolation, session of Fetch v12."""
FETCH_END = b"\x01\x01\0"
"""No forgotten topics, no rack, no tags."""


def count(number: int) -> bytes:
    return primitives.write_count(number, True)


def list_offsets(number: int) -> None:
    read_request(2, 7, bytes(4) + b"\0" + count(number) + b"\x01\x01\0" * number + b"\0")


def delete_topics_by_name(number: int) -> None:
    read_request(20, 5, count(number) + b"\x02t" * number + bytes(4) + b"\0")


def describe_producers_of_partitions(number: int) -> None:
    read_request(61, 0, count(1) + b"\x02t" + count(number - 1) + bytes(4) * (number - 1) + b"\0\0")


def produce_of_topics(number: int) -> None:
    parse_produce_request(b"\0" + bytes(6) + count(number) + b"\x02t\x01\0" * number + b"\0", 9)


def produce_of_partitions(number: int) -> None:
    partitions = count(number - 1) + (bytes(4) + b"\0\0") * (number - 1)
    parse_produce_request(b"\0" + bytes(6) + count(1) + b"\x02t" + partitions + b"\0\0", 9)


def fetch_of_topics(number: int) -> None:
    parse_fetch_request(FETCH_HEAD + count(number) + b"\x02t\x01\0" * number + FETCH_END, 12)


def fetch_of_partitions(number: int) -> None:
    partitions = count(number - 1) + (bytes(4 + 4 + 8 + 4 + 8 + 4) + b"\0") * (number - 1)
    parse_fetch_request(FETCH_HEAD + count(1) + b"\x02t" + partitions + b"\0" + FETCH_END, 12)


def fetch_that_forgets_topics(number: int) -> None:
    parse_fetch_request(FETCH_HEAD + b"\x01" + count(number) + b"\x02t\x01\0" * number + FETCH_END[1:], 12)


def fetch_that_forgets_partitions(number: int) -> None:
    forgotten = count(1) + b"\x02t" + count(number - 1) + bytes(4) * (number - 1) + b"\0"
    parse_fetch_request(FETCH_HEAD + b"\x01" + forgotten + FETCH_END[1:], 12)


def metadata(number: int) -> None:
    parse_metadata_request(count(number) + b"\x02t\0" * number + b"\x01\0\0\0", 9)


def describe_topic_partitions(number: int) -> None:
    build_lower_request(count(number) + b"\x02t\0" * number + bytes(4) + b"\xff\0\0")


@pytest.mark.parametrize("ask", [list_offsets, delete_topics_by_name, describe_producers_of_partitions])
def test_only_as_many_elements_as_allowed_are_read(ask, monkeypatch) -> None:
    monkeypatch.setattr(primitives, "MAX_ELEMENTS", MOST)
    ask(MOST)
    with pytest.raises(ProtocolError, match=f"more than {MOST} topics.*in parts"):
        ask(MOST + 1)


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (produce_of_topics, primitives.MAX_PRODUCED_ELEMENTS),
        (produce_of_partitions, primitives.MAX_PRODUCED_ELEMENTS),
        (fetch_of_topics, primitives.MAX_DECODED_ELEMENTS),
        (fetch_of_partitions, primitives.MAX_DECODED_ELEMENTS),
        (fetch_that_forgets_topics, primitives.MAX_DECODED_ELEMENTS),
        (fetch_that_forgets_partitions, primitives.MAX_DECODED_ELEMENTS),
        (metadata, primitives.MAX_DECODED_ELEMENTS),
    ],
)
def test_requests_that_are_decoded_whole_may_name_less(ask, most: int) -> None:
    ask(most)
    with pytest.raises(ProtocolError, match=rf"more than {most} topics.*in parts"):
        ask(most + 1)


def test_versions_that_brokers_do_not_have_may_name_less() -> None:
    describe_topic_partitions(primitives.MAX_WHOLE_ELEMENTS)
    with pytest.raises(ProtocolError, match=r"more than 2000 topics.*in parts"):
        describe_topic_partitions(primitives.MAX_WHOLE_ELEMENTS + 1)


def test_a_rejected_request_is_not_read_first() -> None:
    """Only the claimed count is present: a reader that goes on would run off the end."""
    with pytest.raises(ProtocolError, match="in parts"):
        read_request(2, 7, bytes(4) + b"\0" + count(primitives.MAX_ELEMENTS + 1) + bytes(primitives.MAX_ELEMENTS + 1))


@pytest.mark.parametrize("walk", [skip_tags, read_tags])
def test_kafka_has_no_request_with_this_many_tagged_fields(walk) -> None:
    walk(b"\x7f" + b"\x01\0" * 127, 0)
    with pytest.raises(ProtocolError, match="128 tagged fields"):
        walk(b"\x80\x01" + b"\x01\0" * 128, 0)


def test_a_request_that_is_too_large_does_not_bypass_the_check_of_names(monkeypatch) -> None:
    """Brokers would create topics whose names belong to the proxy; other unreadable requests are theirs to reject."""
    monkeypatch.setattr("proxy.wire.metadata.MAX_DECODED_ELEMENTS", MOST)
    monkeypatch.setattr(primitives, "MAX_ELEMENTS", MOST)
    settings: Any = SimpleNamespace(default_diskless_topics=("t",))
    unused: Any = None
    handler = CreateTopics(settings, topics=unused, under_replicated=unused, creator=unused)
    creation = auto_creation_of(settings)
    body = count(MOST + 1) + b"\x02t\0" * (MOST + 1) + b"\x01\0\0\0"
    with pytest.raises(TooManyElements):
        at_once(creation.creating_request(body, 9))
    assert at_once(creation.creating_request(count(MOST) + b"\x02t", 9)) is None
    forwarded: list[Any] = []
    client: Any = SimpleNamespace(forward=forwarded.append)
    for number, passed in ((MOST + 1, 0), (MOST, 1)):
        create = memoryview(count(number) + bytes(number))  # and then it ends
        request = Request(19, 7, 1, "me", create, create)
        if passed:
            handler.create_topics(client, request)
        else:
            with pytest.raises(ProtocolError):
                handler.create_topics(client, request)
        assert len(forwarded) == passed
