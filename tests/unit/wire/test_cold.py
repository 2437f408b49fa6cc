"""Cold messages: what kio lets through and nobody may send."""

from __future__ import annotations

import struct

import pytest

from proxy.wire.cold import read_request
from proxy.wire.errors import ProtocolError

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
