"""Searches for records' own timestamps give the same result as a plain list of the records."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from proxy.diskless import record_times as record_times_module
from proxy.diskless.kept_blocks import PatchedRun
from proxy.diskless.record_times import RecordTime, SearchStopped, first_since, newest, record_times
from proxy.records.batches import HEADER_BYTES, RecordsError, patch_offsets

LARGE = 1 << 20
ATTRIBUTES_AT, BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT = 21, 27, 35
times = st.one_of(st.just(-1), st.integers(0, 9), st.integers(2**40, 2**40 + 3), st.just(2**62))
batches = st.tuples(st.integers(0, 4), st.lists(times, min_size=1, max_size=6), st.booleans())
"""Codec, timestamps, and whether they are append times."""


def build(codec: int, timestamps: list[int], append_time: bool = False) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, LARGE)
    for index, timestamp_ms in enumerate(timestamps):
        # The builder knows no negative ones, so all are moved up, and the one that the others count from back again.
        assert builder.append(index, timestamp_ms + 1, b"key" * index, b"v" * 50, [("header", None)]) is not None
    batch = bytearray(builder.build())
    if append_time:
        batch[ATTRIBUTES_AT + 1] |= 0x08
    struct.pack_into(">qq", batch, BASE_TIMESTAMP_AT, timestamps[0], max(timestamps))
    return batch


def as_run(written: list[bytearray], base_offset: int = 0) -> PatchedRun:
    data = memoryview(bytearray().join(written))
    return PatchedRun(data.toreadonly(), tuple(patch_offsets(data, base_offset, 0)))


def run_and_list(wanted: list[tuple[int, list[int], bool]], base_offset: int) -> tuple[PatchedRun, list[RecordTime]]:
    times_of_offsets: list[int] = []
    for _, timestamps, append_time in wanted:
        times_of_offsets += [max(timestamps)] * len(timestamps) if append_time else timestamps
    return as_run([build(*one) for one in wanted], base_offset), [
        RecordTime(base_offset + place, timestamp_ms) for place, timestamp_ms in enumerate(times_of_offsets)
    ]


@given(st.lists(batches, min_size=1, max_size=4), st.integers(0, 2**53))
def test_every_record_has_its_offset_and_timestamp(wanted, base_offset):
    run, records = run_and_list(wanted, base_offset)
    found = [
        record
        for batch in run.batches
        for record in record_times(run.data[batch.position : batch.position + batch.length], LARGE)
    ]
    assert found == records


@given(st.lists(batches, min_size=1, max_size=4), times, st.integers(95, 125))
def test_the_first_record_since_a_time_and_the_newest_are_those_of_the_list(wanted, timestamp_ms, from_offset):
    run, records = run_and_list(wanted, 100)
    there = [record for record in records if record.offset >= from_offset]
    first = next((record for record in there if record.timestamp_ms >= timestamp_ms), None)
    assert first_since(run, timestamp_ms, from_offset, max_batch_bytes=LARGE) == first
    latest = max(there, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
    assert newest(run, from_offset, max_batch_bytes=LARGE) == latest


def test_a_batch_that_says_a_later_time_than_it_holds_is_passed_over():
    liar = build(0, [5, 6])
    struct.pack_into(">q", liar, MAX_TIMESTAMP_AT, 1_000)
    run = as_run([liar, build(0, [7, 900])])
    assert first_since(run, 800, 0, max_batch_bytes=LARGE) == (3, 900)
    assert newest(run, 0, max_batch_bytes=LARGE) == (3, 900)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_can_not_be_read_is_taken_as_a_whole(codec):
    broken = build(codec, list(range(10, 40)))
    broken[HEADER_BYTES:] = bytes(len(broken) - HEADER_BYTES)
    run = as_run([build(0, [1]), broken])
    assert first_since(run, 15, 0, max_batch_bytes=LARGE) == (1, 39)
    assert first_since(run, 15, 7, max_batch_bytes=LARGE) == (7, 39)
    assert newest(run, 0, max_batch_bytes=LARGE) == (1, 39)


def test_a_batch_that_becomes_too_large_is_taken_as_a_whole():
    run = as_run([build(1, list(range(100)))])
    assert first_since(run, 50, 3, max_batch_bytes=6_000) == (3, 99)
    assert first_since(run, 50, 3, max_batch_bytes=LARGE) == (50, 50)


@given(st.binary(max_size=60), st.integers(1, 4), st.integers(0, 4))
def test_arbitrary_bytes_raise_the_one_error(noise, count, codec):
    batch = build(0, [1])[:HEADER_BYTES] + noise
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, HEADER_BYTES - 4, count)
    batch[ATTRIBUTES_AT + 1] = codec
    with suppress(RecordsError):
        assert len(list(record_times(batch, 1 << 16))) == count


def test_one_search_decompresses_a_bounded_amount_over_any_number_of_batches():
    """Headers that claim a later time than their records have make a search look at one batch after the other."""
    written = [build(4, [1] * 20) for _ in range(3)]
    for batch in written:
        struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, 99)
    run = as_run(written)
    assert first_since(run, 50, 0, max_batch_bytes=LARGE) is None
    assert first_since(run, 50, 0, max_batch_bytes=4_000) == (40, 99)


def test_a_search_ends_when_it_is_cancelled(monkeypatch):
    monkeypatch.setattr(record_times_module, "_RECORDS_BETWEEN_LOOKS", 10)
    run = as_run([build(0, [1] * 100)])
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    with pytest.raises(SearchStopped):
        first_since(run, 1, 99, max_batch_bytes=LARGE, stopped=stopped)
