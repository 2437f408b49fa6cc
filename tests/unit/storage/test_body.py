"""The body of an upload reads as a file in memory does, and copies nothing. An answer is read whole."""

from __future__ import annotations

import asyncio
import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.storage.body import Body, read_whole

SIZES = st.none() | st.integers(-1, 12)
STEPS = st.lists(
    st.tuples(st.just("read"), SIZES)
    | st.tuples(st.just("seek"), st.tuples(st.integers(0, 12), st.just(os.SEEK_SET)))
    | st.tuples(st.just("seek"), st.tuples(st.integers(-2, 12), st.sampled_from([os.SEEK_CUR, os.SEEK_END]))),
    max_size=12,
)


@given(st.binary(max_size=10), STEPS)
def test_reads_and_seeks_are_those_of_a_file_in_memory(data: bytes, steps: list[tuple[str, object]]) -> None:
    file, body = io.BytesIO(data), Body(bytearray(data))
    for name, given_ in steps:
        arguments = given_ if isinstance(given_, tuple) else (given_,)
        if name == "seek":
            offset, origin = arguments
            target = {os.SEEK_SET: 0, os.SEEK_CUR: file.tell(), os.SEEK_END: len(data)}[origin] + offset
            if target < 0:  # a file in memory moves to its beginning, or raises: it depends on the kind of move
                continue
        assert getattr(body, name)(*arguments) == getattr(file, name)(*arguments)
        assert body.tell() == file.tell()
    with body.getbuffer() as everything:
        assert everything == data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_read_is_a_view_of_the_data(kind: type) -> None:
    data = kind(b"0123456789")
    part = memoryview(Body(data).read(4))
    assert bytes(part) == b"0123"
    assert part.obj is (data.obj if isinstance(data, memoryview) else data)


def test_a_position_before_the_beginning_is_an_error() -> None:
    with pytest.raises(ValueError, match="position -1 is before the beginning"):
        Body(b"0123").seek(-1)


class Pieces:
    """The body of an answer."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    async def read(self, amount: int) -> bytes:
        return next(self._pieces, b"")


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=5), st.integers(0, 30))
def test_an_answer_is_read_whole_whatever_size_was_expected(pieces: list[bytes], expected_bytes: int) -> None:
    data = asyncio.run(read_whole(Pieces(pieces), expected_bytes))
    assert type(data) is bytearray
    assert data == b"".join(pieces)
