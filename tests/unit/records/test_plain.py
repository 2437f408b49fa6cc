"""Plain batches: an independent reader reads what is written, and what an independent writer writes is read."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from proxy.records.batches import HEADER_BYTES, RecordsError, check_batch, read_header
from proxy.records.plain import MAX_RECORD_OVERHEAD_BYTES, plain_batch, plain_values
from proxy.records.varint import read_varint, varint
from tests.batches import LZ4, make_batch

VALUES = st.lists(st.binary(max_size=300), min_size=1, max_size=300)


@given(VALUES)
def test_an_independent_reader_reads_the_values(values: list[bytes]) -> None:
    batch = plain_batch(values, 1_700_000_000_000)
    check_batch(memoryview(batch), max_message_bytes=len(batch))
    read = MemoryRecords(batch).next_batch()
    assert read is not None
    assert read.validate_crc()
    records = list(read)
    assert [record.value for record in records] == values
    assert [(record.offset, record.key, record.headers) for record in records] == [
        (place, None, []) for place in range(len(values))
    ]
    assert list(plain_values(batch, read_header(batch))) == values
    largest = HEADER_BYTES + sum(len(value) + MAX_RECORD_OVERHEAD_BYTES for value in values)
    assert len(batch) <= largest


@given(VALUES)
def test_batches_of_an_independent_writer_are_read(values: list[bytes]) -> None:
    batch = make_batch(values)
    assert list(plain_values(batch, read_header(batch))) == values


def test_a_null_value_is_empty() -> None:
    batch = make_batch([None, b"x"])
    assert list(plain_values(batch, read_header(batch))) == [b"", b"x"]


def test_a_compressed_batch_is_rejected() -> None:
    batch = make_batch(codec=LZ4)
    with pytest.raises(RecordsError, match="compressed"):
        list(plain_values(batch, read_header(batch)))


@given(VALUES, st.data())
def test_bytes_that_do_not_match_the_header_are_rejected_or_read(values: list[bytes], data: st.DataObject) -> None:
    batch = bytearray(plain_batch(values, 0))
    place = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[place] ^= data.draw(st.integers(1, 255))
    try:
        assert len(list(plain_values(batch, read_header(batch)))) == len(values)
    except RecordsError:
        pass


def test_offsets_with_gaps_are_rejected() -> None:
    batch = bytearray(plain_batch([b"a", b"b"], 0))
    struct.pack_into(">i", batch, 23, 5)
    with pytest.raises(RecordsError, match="last offset delta of 5"):
        list(plain_values(batch, read_header(batch)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_read_as_written(number: int) -> None:
    assert read_varint(varint(number), 0) == (number, len(varint(number)))
