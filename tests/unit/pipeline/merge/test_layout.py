"""The place of rows in a merged object, and the rows that replace them."""

from __future__ import annotations

import uuid
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipeline.merge.layout import ROW_BYTES, joined_rows, object_bytes, old_rows, swap_of
from pipeline.merge.plan import Output, Part
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP

SEGMENT = uuid.UUID(int=7).bytes


def part(partition: int, lengths: list[int], *, gaps: list[int] | None = None, last_time_ms: int = 3) -> Part:
    rows = []
    offset = 0
    for number, length in enumerate(lengths):
        offset += gaps[number] if gaps else 0
        segment = uuid.UUID(int=partition * 10_000 + number).bytes
        rows.append(Row(offset, offset + 4, segment, 1, length, last_time_ms - number, 1_000 + number, number % 2 == 0))
        offset += 5
    return Part(partition, tuple(rows))


@given(st.lists(st.lists(st.integers(1, ROW_BYTES + 9), min_size=1, max_size=9), min_size=1, max_size=4), st.data())
def test_every_row_has_its_place_and_its_swap(lengths: list[list[int]], data: st.DataObject) -> None:
    gaps = [data.draw(st.lists(st.integers(0, 1), min_size=len(some), max_size=len(some))) for some in lengths]
    output = Output(tuple(part(at, some, gaps=gaps[at]) for at, some in enumerate(lengths)))
    joined = joined_rows(output)
    assert [(one.part, row) for one in joined for row in old_rows(output, one)] == [
        (part.partition, row) for part in output.parts for row in part.rows
    ]
    position = 1
    for one in joined:
        assert one.position == position
        position += one.length
        old = old_rows(output, one)
        assert one.number == 1 or one.length <= ROW_BYTES
        assert one.length == sum(row.length for row in old)
        for before, after in pairwise(old):
            assert after.base_offset == before.last_offset + 1
    assert object_bytes(joined) == position == output.size_bytes + 1


def test_the_new_row_says_what_the_old_ones_did() -> None:
    output = Output((part(3, [100, 200, 50]),))
    (joined,) = joined_rows(output)
    swap = swap_of(output, joined, b"t" * 16, SEGMENT)
    assert (swap.topic_id, swap.partition, swap.old) == (b"t" * 16, 3, output.parts[0].rows)
    assert swap.new == Row(0, 14, SEGMENT, 1, 350, 3, 1_002, log_append_time=False, offsets_in_place=True)


def test_as_many_old_rows_as_a_swap_takes() -> None:
    joined = joined_rows(Output((part(0, [1] * (MAX_ROWS_PER_SWAP + 1)),)))
    assert [one.number for one in joined] == [MAX_ROWS_PER_SWAP, 1]


def test_a_gap_is_not_within_a_row() -> None:
    output = Output((part(0, [10, 10, 10], gaps=[0, 0, 7]),))
    olds = [old_rows(output, one) for one in joined_rows(output)]
    assert [(old[0].base_offset, old[-1].last_offset) for old in olds] == [(0, 9), (17, 21)]


def test_rows_that_cannot_be_read_are_left_out() -> None:
    output = Output((part(0, [10, 20, 30, 40, 50, 60]), part(1, [5])))
    rows = output.parts[0].rows
    joined = joined_rows(output, {rows[0], rows[3]})
    assert [old_rows(output, one) for one in joined] == [rows[1:3], rows[4:], output.parts[1].rows]
    assert [one.position for one in joined] == [1, 51, 161]
    assert object_bytes(joined) == 166
    assert object_bytes(joined_rows(output, set(rows + output.parts[1].rows))) == 0
