"""The bytes that the scripts for jobs on object storage receive and return."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator import packing_rewriting as packing
from proxy.coordinator.interface import Row, SegmentUse
from proxy.coordinator.interface_rewriting import IndexedRow, IndexPage, LogState, OpenTransaction, Swap, SwapAnswer
from proxy.coordinator.interface_transactions import AbortedTransaction
from tests.unit.coordinator.test_packing import HEADER, TOPIC, packed_row, rows, timestamps

offsets = st.integers(-1, 2**53)
figures = st.builds(LogState, *[st.integers(0, 2**53)] * 4, timestamps, offsets, offsets)
open_transactions = st.builds(OpenTransaction, *[offsets] * 3)
aborted_transactions = st.builds(AbortedTransaction, *[offsets] * 4)


@given(st.lists(rows, min_size=1, max_size=4), st.one_of(st.none(), rows))
def test_a_swap_is_its_rows_as_in_the_index_except_their_running_maximum(old: list[Row], new: Row | None) -> None:
    packed = packing.pack_swap(Swap(TOPIC, 7, tuple(old), new))
    assert packed[:25] == TOPIC + struct.pack(">IIB", 7, len(old), new is not None)
    rows = [*old, new] if new else old
    flags = [1 + 0x10 * row.log_append_time + 0x20 * row.offsets_in_place for row in rows]
    wanted = [struct.pack(">Bqq16sIIqq", flag, *row[:7]) for flag, row in zip(flags, rows, strict=True)]
    assert packed[25:] == b"".join(wanted)


def test_an_impossible_row_is_rejected() -> None:
    row = Row(0, 0, bytes(16), 2**32, 1, 0, 0)
    with pytest.raises(ValueError, match="can't be packed"):
        packing.pack_swap(Swap(TOPIC, 0, (row,), None))


def test_answers_to_swaps() -> None:
    assert packing.unpack_swap_answers(HEADER + b"\0\1\2\3\4\0") == [*SwapAnswer, SwapAnswer.REPLACED]
    assert packing.unpack_swap_answers(HEADER) == []


@given(
    st.one_of(st.none(), figures),
    st.lists(st.tuples(rows, timestamps), max_size=4),
    st.integers(-1, 2**53),
    st.lists(open_transactions, max_size=3),
    st.lists(aborted_transactions, max_size=3),
)
def test_a_page_round_trips(
    log: LogState | None,
    found: list[tuple[Row, int]],
    next_offset: int,
    opened: list[OpenTransaction],
    aborted: list[AbortedTransaction],
) -> None:
    reply = HEADER + struct.pack(">B7q", log is not None, *(log or [0] * 7))
    reply += struct.pack(">qII", next_offset, len(found), len(opened))
    reply += b"".join(packed_row(row, running_maximum=maximum) for row, maximum in found)
    reply += b"".join(struct.pack(">3q", *one) for one in opened)
    reply += b"".join(struct.pack(">4q", *one) for one in aborted)
    expected = tuple(IndexedRow(row, maximum) for row, maximum in found)
    assert packing.unpack_page(reply) == IndexPage(log, expected, next_offset, tuple(opened), tuple(aborted))


@given(st.binary(min_size=1, max_size=20), st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(0, 2**31)))
def test_segments_in_use_round_trip(place: bytes, use: dict[bytes, int]) -> None:
    reply = HEADER + bytes([len(place)]) + place
    reply += b"".join(segment + struct.pack(">qI", rows * 10, rows) for segment, rows in use.items())
    expected = [(segment, SegmentUse(rows * 10, rows)) for segment, rows in use.items()]
    assert packing.unpack_used_segments(reply) == (expected, place)
