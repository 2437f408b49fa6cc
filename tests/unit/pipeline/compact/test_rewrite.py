"""Compacted batches, read back with an independent decoder."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.aborted import Aborted
from pipeline.compact.records import DELETE_HORIZON, delete_horizon_ms, kept_of, moved
from pipeline.compact.rewrite import Cleaned, Cleaning, Event, clean_row
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.records.batches import RecordsError, check_offsets, patch_offsets, read_header
from tests.support.keyed import START_MS, Keyed, Producer, decoded, keyed_batch
from tests.support.records import Stored

NOW_MS = START_MS + 1_000_000
RETENTION_MS = 5_000
FAR_END = 1 << 40
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3) | st.none()), max_size=2).map(tuple)
RECORDS = st.lists(
    st.builds(Keyed, st.binary(max_size=2), st.binary(max_size=200) | st.none(), HEADERS), min_size=1, max_size=6
)


class Row(NamedTuple):
    """Neighbouring batches, with offsets in place."""

    data: bytearray
    base_offset: int
    last_offset: int

    def cleaned(self, kept: set[int], cleaning: Cleaning | None = None) -> Cleaned:
        """With the survivors of these offsets."""
        return clean(bytes(self.data), self.base_offset, kept, self.last_offset, cleaning)

    def records(self) -> list[Stored]:
        return decoded_row(bytes(self.data), self.base_offset, self.last_offset)


def clean(data: bytes, base: int, kept: set[int], last: int, cleaning: Cleaning | None = None) -> Cleaned:
    codes = [one.offset << 1 | (one.value is None) for one in decoded_row(data, base, last) if one.offset in kept]
    bounds = check_offsets(data, base, last)
    return clean_row(data, bounds, codes, cleaning or Cleaning(NOW_MS, RETENTION_MS, FAR_END))


def decoded_row(data: bytes, base: int, last: int) -> list[Stored]:
    if not data:
        return []
    bounds = check_offsets(data, base, last)
    return decoded(data[one.position : one.position + one.length] for one in bounds)


def row_of(
    batches: list[list[Keyed]],
    *,
    base_offset: int = 1_000,
    codec: int = 0,
    append_time_ms: int | None = None,
    producer: Producer = Producer(),
) -> Row:
    data = bytearray()
    sequence = producer.sequence
    for number, records in enumerate(batches):
        data += keyed_batch(
            records, codec=codec, producer=producer._replace(sequence=sequence), timestamp_ms=START_MS + 10 * number
        )
        sequence += len(records) if sequence >= 0 else 0
    bounds = patch_offsets(data, base_offset, 0, append_time_ms)
    return Row(data, base_offset, bounds[-1].last_offset)


@given(
    batches=st.lists(RECORDS, min_size=1, max_size=4),
    codec=st.integers(0, 4),
    append_time_ms=st.none() | st.just(START_MS + 77),
    data=st.data(),
)
def test_kept_records_stay_unchanged(
    batches: list[list[Keyed]], codec: int, append_time_ms: int | None, data: st.DataObject
) -> None:
    row = row_of(batches, codec=codec, append_time_ms=append_time_ms)
    kept = data.draw(st.sets(st.integers(row.base_offset, row.last_offset)))

    cleaned = row.cleaned(kept)

    left = decoded_row(cleaned.data, row.base_offset, cleaned.last_offset)
    assert left == [record for record in row.records() if record.offset in kept]
    assert (cleaned.records_before, cleaned.records) == (len(row.records()), len(left))
    assert cleaned.max_timestamp_ms == max((record.timestamp_ms for record in left), default=-1)
    assert cleaned.changed == (cleaned.data != row.data)
    for bounds in check_offsets(cleaned.data, row.base_offset, cleaned.last_offset) if left else ():
        batch = memoryview(cleaned.data)[bounds.position : bounds.position + bounds.length]
        here = [record for record in left if bounds.base_offset <= record.offset <= bounds.last_offset]
        tombstones = any(record.value is None for record in here)
        assert delete_horizon_ms(read_header(batch)) == (NOW_MS + RETENTION_MS if tombstones else None)


@given(batches=st.lists(RECORDS, min_size=1, max_size=3), codec=st.integers(0, 4))
def test_a_second_time_changes_nothing_before_the_horizon(batches: list[list[Keyed]], codec: int) -> None:
    row = row_of(batches, codec=codec)
    kept = set(range(row.base_offset, row.last_offset + 1))
    once = row.cleaned(kept)

    again = clean(
        once.data,
        row.base_offset,
        kept,
        once.last_offset,
        Cleaning(NOW_MS + RETENTION_MS - 1, RETENTION_MS, FAR_END),
    )

    assert not again.changed
    assert again.data == once.data


@given(batches=st.lists(RECORDS, min_size=1, max_size=3), codec=st.integers(0, 4))
def test_tombstones_go_at_the_horizon(batches: list[list[Keyed]], codec: int) -> None:
    row = row_of(batches, codec=codec)
    kept = set(range(row.base_offset, row.last_offset + 1))
    once = row.cleaned(kept)

    later = Cleaning(NOW_MS + RETENTION_MS, RETENTION_MS, FAR_END)
    again = clean(once.data, row.base_offset, kept, once.last_offset, later)

    left = decoded_row(again.data, row.base_offset, again.last_offset)
    assert left == [record for record in row.records() if record.value is not None]
    assert again.tombstones_removed == sum(record.value is None for record in row.records())


def test_a_tombstone_that_was_never_seen_stays_however_old_it_is() -> None:
    row = row_of([[Keyed(b"key", None)]])

    cleaned = row.cleaned({1_000}, Cleaning(START_MS + 10**12, 0, FAR_END))

    assert decoded_row(cleaned.data, 1_000, 1_000) == row.records()


def test_batches_without_anything_left_go() -> None:
    row = row_of([[Keyed(b"a", b"1")], [Keyed(b"a", b"2")]])

    cleaned = row.cleaned({1_001})

    assert check_offsets(cleaned.data, 1_001, 1_001)
    assert row.cleaned(set()).data == b""
    assert row.cleaned(set()).last_offset == -1


def test_offsets_and_sequences_of_a_batch_outlive_its_records() -> None:
    row = row_of([[Keyed(b"a", b"1"), Keyed(b"b", b"2"), Keyed(b"c", b"3")]], producer=Producer(7, 2, 40))

    cleaned = row.cleaned({1_001})

    header = read_header(cleaned.data)
    assert (header.last_offset_delta, header.record_count) == (2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert cleaned.last_offset == 1_002


@pytest.mark.parametrize(("sequence", "last"), [(40, 41), (2**31 - 1, 0), (2**31 - 2, 2**31 - 1)])
def test_the_batch_with_a_producers_last_sequence_stays_empty(sequence: int, last: int) -> None:
    row = row_of([[Keyed(b"a", b"1"), Keyed(b"b", None)]], codec=4, producer=Producer(7, 2, sequence))
    needed = Cleaning(NOW_MS, RETENTION_MS, FAR_END, {(7, 2, last)})

    cleaned = row.cleaned(set(), needed)

    header = read_header(cleaned.data)
    assert (header.record_count, header.compression, header.last_offset_delta) == (0, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, sequence)
    assert header.max_timestamp_ms == START_MS + 1
    assert (cleaned.last_offset, cleaned.changed) == (1_001, True)
    assert not clean(cleaned.data, 1_000, set(), 1_001, needed).changed
    gone = clean(cleaned.data, 1_000, set(), 1_001, needed._replace(last_sequences={(7, 3, last)}))
    assert gone.data == b""


def test_the_last_batch_of_all_stays_empty() -> None:
    row = row_of([[Keyed(b"a", b"1")], [Keyed(None, b"2")]])

    cleaned = row.cleaned(set(), Cleaning(NOW_MS, RETENTION_MS, row.last_offset + 1))

    bounds = check_offsets(cleaned.data, row.base_offset, row.last_offset)
    assert [(one.base_offset, one.last_offset) for one in bounds] == [(1_001, 1_001)]
    assert cleaned.records == 0


def test_markers_of_transactions_are_left_alone() -> None:
    row = row_of([[Keyed(b"a", b"1")]])
    row.data[22] |= 0x30

    cleaned = clean_row(row.data, check_offsets(row.data, 1_000, 1_000), [], Cleaning(NOW_MS, RETENTION_MS, FAR_END))

    assert cleaned.data == row.data
    assert not cleaned.changed
    assert cleaned.events == (Event(1_000, -1, True, False),)


def test_records_of_aborted_transactions_go() -> None:
    row = row_of([[Keyed(b"a", b"1")], [Keyed(b"b", b"2")]], producer=Producer(7, 0, 5))
    row.data[22] |= 0x10
    cleaning = Cleaning(NOW_MS, RETENTION_MS, FAR_END, (), Aborted([AbortedTransaction(1_009, 1_000, 7, 1_010)]))

    cleaned = row.cleaned({1_000, 1_001}, cleaning)

    assert decoded_row(cleaned.data, 1_000, 1_001) == row.records()[1:], "the second batch is of no transaction"
    assert cleaned.events == (Event(1_000, 7, False, False),)
    kept = row.cleaned({1_000, 1_001}, cleaning._replace(last_sequences={(7, 0, 5)}))
    assert (read_header(kept.data).record_count, kept.records) == (0, 1), "the last sequence stays"


def test_a_horizon_in_the_batch_is_not_moved() -> None:
    row = row_of([[Keyed(b"a", None), Keyed(b"b", b"2")]])
    once = row.cleaned({1_000, 1_001})

    again = clean(once.data, 1_000, {1_000}, 1_001, Cleaning(NOW_MS + 1, RETENTION_MS, FAR_END))

    header = read_header(again.data)
    assert header.attributes & DELETE_HORIZON
    assert delete_horizon_ms(header) == NOW_MS + RETENTION_MS
    assert decoded_row(again.data, 1_000, 1_001) == row.records()[:1]


@given(codec=st.integers(0, 4), garbage=st.binary(max_size=80), records=RECORDS)
def test_foreign_bytes_raise_the_one_error(codec: int, garbage: bytes, records: list[Keyed]) -> None:
    row = row_of([records], codec=codec)
    broken = bytearray(row.data[:61] + garbage)
    broken[8:12] = (len(broken) - 12).to_bytes(4, "big")
    codes = [row.base_offset << 1]  # one of several, or a batch that cannot be copied unchanged

    try:
        cleaned = clean_row(
            broken,
            check_offsets(broken, row.base_offset, row.last_offset),
            [*codes, (row.base_offset + 1) << 1 | 1][: len(records)],
            Cleaning(NOW_MS, RETENTION_MS, FAR_END),
        )
    except RecordsError:
        return
    assert len(records) == 1 or cleaned.records <= len(records)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_records_are_found_or_the_one_error_is_raised(data: bytes, count: int) -> None:
    try:
        kept = kept_of(data, count, range(-(2**70), 2**70))
        moved(kept, 1)
    except RecordsError:
        return
    assert (kept.data, kept.records) == (data, count)
