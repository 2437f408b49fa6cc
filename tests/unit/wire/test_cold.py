"""Cold messages: bytes that kio accepts and no client may send."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import KioIndexError

from proxy.protocol.apis import API_TABLE
from proxy.wire.cold import read_request
from proxy.wire.cold_lengths import check_lengths
from proxy.wire.errors import ProtocolError
from tests.unit.wire.trees import encode, request_type, response_type, trees


def known(api_key: int, version: int, *, response: bool) -> bool:
    """True if kio has that version."""
    try:
        (response_type if response else request_type)(api_key, version)
    except KioIndexError:
        return False
    return True


LIST_OFFSETS, CREATE_TOPICS = 2, 19


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (LIST_OFFSETS, 1, struct.pack(">ii", -1, -1)),
        (LIST_OFFSETS, 1, struct.pack(">iih1si", -1, 1, 1, b"t", -1)),
        (CREATE_TOPICS, 7, bytes(20)),
    ],
)
def test_null_in_an_array_that_must_not_be_null_is_the_one_error(api_key, version, body):
    with pytest.raises(ProtocolError, match="must not be null"):
        read_request(api_key, version, body)


def test_an_array_that_is_empty_is_read():
    assert read_request(LIST_OFFSETS, 1, struct.pack(">ii", -1, 0)).topics == ()


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (LIST_OFFSETS, 1, struct.pack(">ii", -1, 2**31 - 1)),
        (LIST_OFFSETS, 1, struct.pack(">iih1si", -1, 1, 1, b"t", 2**31 - 1)),
        (CREATE_TOPICS, 7, b"\xff\xff\xff\xff\x0f" + bytes(40)),
        (CREATE_TOPICS, 7, b"\x02\x02t" + bytes(6) + b"\xff\xff\xff\xff\x0f" + bytes(40)),
    ],
)
def test_room_is_made_for_what_is_there_and_not_for_what_is_claimed(api_key, version, body):
    """kio's reader would allocate as many gigabytes, and end the process when it does not get them."""
    with pytest.raises(ProtocolError, match=r"more than the message can hold|ends too early"):
        read_request(api_key, version, body)


READ_HERE = [
    (api_key, version, response)
    for api_key in sorted({2, 19, 20, 21, 23, 32, 33, 37, 44, 48, 55})
    for version in range(API_TABLE[api_key].highest_version + 1)
    for response in (False, True)
    if known(api_key, version, response=response)
]


@pytest.mark.parametrize(("api_key", "version", "response"), READ_HERE)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_message_that_is_whole_passes_and_none_that_is_cut(api_key, version, response, data):
    entity = (response_type if response else request_type)(api_key, version)
    whole = encode(entity, data.draw(trees(entity)))
    check_lengths(entity, whole, of_client=not response)
    check_lengths(entity, memoryview(whole), of_client=not response)
    with pytest.raises(ProtocolError):
        check_lengths(entity, whole[: data.draw(st.integers(0, len(whole) - 1))], of_client=not response)
