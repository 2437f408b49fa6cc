"""The primitive types, at their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import primitives
from proxy.wire.errors import ProtocolError
from tests.unit.wire.trees import varint


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints(value, before):
    encoded = varint(value)
    assert primitives.unsigned_varint(value) == encoded
    at = len(before)
    assert primitives.read_unsigned_varint(before + encoded + b"\x07", at) == (value, at + len(encoded))
    assert primitives.read_length(before + encoded, at) == (value - 1, at + len(encoded))


@pytest.mark.parametrize("overlong", [b"\x80\x00", b"\x80\x80\x80\x80\x00"])
def test_overlong_varints_are_read(overlong):
    assert primitives.read_unsigned_varint(overlong, 0) == (0, len(overlong))


@pytest.mark.parametrize("wrong", [b"\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\xff\x01"])
def test_varints_of_more_than_32_bits_are_rejected(wrong):
    with pytest.raises(ProtocolError, match="varint"):
        primitives.read_unsigned_varint(wrong, 0)


@given(st.none() | st.text(max_size=200), st.booleans())
def test_strings(text, flexible):
    encoded = primitives.write_string(text, flexible)
    assert primitives.read_nullable_string(encoded + b"x", 0, flexible) == (text, len(encoded))
    assert primitives.skip_string(encoded + b"x", 0, flexible) == len(encoded)


def test_a_string_that_int16_cannot_hold_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="32768"):
        primitives.write_string("x" * 32768, False)


@pytest.mark.parametrize("flexible", [True, False])
def test_a_null_string_where_none_may_be(flexible):
    with pytest.raises(ProtocolError, match="null"):
        primitives.read_string(primitives.write_string(None, flexible), 0, flexible)


def test_a_count_beyond_the_data_is_rejected_before_anything_is_built():
    with pytest.raises(ProtocolError, match="2147483647"):
        primitives.read_count(b"\x7f\xff\xff\xff" + bytes(100), 0, False)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=200)), max_size=4))
def test_tagged_fields(fields):
    section = primitives.write_tags(fields)
    read, end = primitives.read_tags(section + b"x", 0)
    assert end == len(section) == primitives.skip_tags(section + b"x", 0)
    assert [(tag, section[start:stop]) for tag, start, stop in read] == fields
