"""The names found in a request are those that kio reads, however deep they are."""

from __future__ import annotations

import pytest

from proxy.wire.cold_names import names_in
from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import write_count


def count(number: int) -> bytes:
    return write_count(number, True)


def test_names_and_elements_of_nested_arrays() -> None:
    topic = b"\x02%b" + count(2) + bytes(8) + b"\0"
    transaction = b"\x02t" + bytes(11) + count(2) + topic % b"a" + topic % b"b" + b"\0"
    named = names_in(24, 4, count(2) + 2 * transaction + b"\0", ("name",))
    assert named.topics == ["a", "b", "a", "b"]
    assert named.elements == 2 + 4 + 8


def test_ids_of_several_arrays() -> None:
    topics = count(1) + b"x" * 16 + count(1) + bytes(4) + count(0) + b"\0\0"
    forgotten = count(1) + b"y" * 16 + count(1) + bytes(4) + b"\0"
    named = names_in(78, 1, b"\x02g\x02m" + bytes(24) + topics + forgotten + b"\0", ("topic_id",))
    assert named.topics == [b"x" * 16, b"y" * 16]


def test_a_request_that_ends_too_early() -> None:
    with pytest.raises(ProtocolError):
        names_in(24, 4, count(1) + b"\x02t" + bytes(11) + count(2) + b"\x02a", ("name",))
