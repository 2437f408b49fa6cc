"""Reading rows: the requests, their order and bounds, and the handling of wrong bytes."""

from __future__ import annotations

import asyncio
import pickle
import uuid
from contextlib import aclosing
from itertools import pairwise
from random import Random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reading import Range, RowUnreadable, coalesce, fetch_ranges, place_batches, row_batches
from proxy.coordinator.interface import Row
from proxy.diskless.wal.segment import segment_key
from proxy.records.batches import patch_offsets, read_header
from proxy.storage.interface import StorageError
from tests.batches import GZIP, make_batch
from tests.support.memory_log import MemoryObjects
from tests.support.transactions import MARKER_MS, marker_row

SEGMENTS = [uuid.UUID(int=number).bytes for number in range(4)]


def row(segment: int = 0, position: int = 1, length: int = 100, *, base: int = 0, last: int = 0, **more: bool) -> Row:
    return Row(base, last, SEGMENTS[segment], position, length, 7, 9, **more)


# Which ranges


@st.composite
def laid_out(draw: st.DrawFn) -> list[Row]:
    """Rows that do not overlap, of some objects, in any order."""
    rows = []
    for segment in range(draw(st.integers(1, 4))):
        position = 1
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 80)), max_size=8)):
            rows.append(row(segment, position + gap, length))
            position += gap + length
    return draw(st.permutations(rows))


@given(laid_out(), st.integers(1, 200), st.integers(0, 70))
def test_every_row_lies_in_one_range_within_the_bounds(rows: list[Row], max_get: int, max_gap: int) -> None:
    ranges = coalesce(rows, max_get_bytes=max_get, max_gap_bytes=max_gap)
    assert sorted(place for one in ranges for place in one.places) == list(range(len(rows)))
    for one in ranges:
        inside = [rows[place] for place in one.places]
        assert {each.segment for each in inside} == {one.segment}
        assert [each.position for each in inside] == sorted(each.position for each in inside)
        assert one.start <= inside[0].position <= one.start + 1
        assert one.end == inside[-1].position + inside[-1].length
        assert len(inside) == 1 or one.end - one.start <= max_get + 1
        for before, after in pairwise(inside):
            assert after.position - before.position - before.length <= max_gap
    firsts = [min(one.places) for one in ranges]
    assert firsts == sorted(firsts)


def test_neighbours_share_a_range_and_distant_rows_do_not() -> None:
    rows = [row(0, 1, 100), row(1, 50, 10), row(0, 101, 100), row(0, 1_000, 5)]
    assert coalesce(rows, max_get_bytes=500, max_gap_bytes=20) == [
        Range(SEGMENTS[0], 0, 201, (0, 2)),
        Range(SEGMENTS[1], 50, 60, (1,)),
        Range(SEGMENTS[0], 1_000, 1_005, (3,)),
    ]


def test_markers_of_transactions_share_an_empty_range() -> None:
    rows = [row(0, 1, 100), marker_row(1), row(0, 101, 100), marker_row(3, committed=False)]
    ranges = coalesce(rows)
    assert [(one.places, one.has_object) for one in ranges] == [((0, 2), True), ((1, 3), False)]


# Fetching


class SlowObjects(MemoryObjects):
    """Counts concurrent requests, and answers in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.gets = self.most_gets = self.total_gets = 0

    async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
        self.gets += 1
        self.total_gets += 1
        self.most_gets = max(self.gets, self.most_gets)
        try:
            for _ in range(self.random.randrange(5)):
                await asyncio.sleep(0)
            return await super().fetch(key, start, end)
        finally:
            self.gets -= 1


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 4), st.integers(1, 120), st.integers(0, 99))
async def test_ranges_come_in_order_within_both_bounds(sizes: list[int], gets: int, most: int, seed: int) -> None:
    storage = SlowObjects(seed)
    data = bytearray(Random(seed).randbytes(sum(sizes)))
    storage.objects[segment_key(SEGMENTS[0])] = data
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    ranges = [Range(SEGMENTS[0], end - size, end, ()) for end, size in zip(ends, sizes, strict=True)]
    taken = 0

    def wanted_ranges() -> list[Range]:
        nonlocal taken
        for one in ranges:
            taken += 1
            yield one

    done: list[Range] = []
    async for range_, found in fetch_ranges(storage, wanted_ranges(), gets=gets, max_bytes_in_flight=most):  # type: ignore[arg-type]
        in_memory = ranges[len(done) : max(len(done) + 1, taken - 1)]  # one that does not fit is read ahead
        assert len(in_memory) == 1 or sum(one.end - one.start for one in in_memory) <= most
        assert found == data[range_.start : range_.end]
        done.append(range_)
    assert done == ranges
    assert storage.most_gets <= gets


async def test_a_missing_object_is_reported_in_its_place() -> None:
    storage = MemoryObjects()
    storage.objects[segment_key(SEGMENTS[1])] = bytearray(b"0123456789")
    ranges = [Range(SEGMENTS[0], 0, 5, (0,)), Range(SEGMENTS[1], 8, 20, (1,))]
    found = [data async for _, data in fetch_ranges(storage, ranges, gets=2, max_bytes_in_flight=100)]  # type: ignore[arg-type]
    assert isinstance(found[0], RowUnreadable)
    assert found[0].kind == "missing"
    assert segment_key(SEGMENTS[0]) in str(found[0].of_row(row(0, base=4, last=8)))
    assert "offsets 4 to 8" in str(found[0].of_row(row(0, base=4, last=8)))
    assert found[1] == b"89"


async def test_a_storage_that_fails_is_an_error_and_leaves_nothing_running() -> None:
    class Failing(MemoryObjects):
        async def fetch(self, key: str, start: int = 0, end: int | None = None) -> bytearray:
            if start:
                await asyncio.sleep(3600)
            raise StorageError("refused")

    ranges = [Range(SEGMENTS[0], start, start + 1, ()) for start in range(5)]
    with pytest.raises(StorageError, match="refused"):
        async for _ in fetch_ranges(Failing(), ranges, gets=5, max_bytes_in_flight=100):  # type: ignore[arg-type]
            pass
    assert len(asyncio.all_tasks()) == 1


async def test_a_reader_that_leaves_early_leaves_nothing_running() -> None:
    storage = SlowObjects(1)
    storage.objects[segment_key(SEGMENTS[0])] = bytearray(10)
    ranges = [Range(SEGMENTS[0], start, start + 1, ()) for start in range(10)]
    async with aclosing(fetch_ranges(storage, ranges, gets=3, max_bytes_in_flight=5)) as fetched:  # type: ignore[arg-type]
        await anext(fetched)
    assert len(asyncio.all_tasks()) == 1
    assert storage.total_gets < 10


# Batches


def some_batches(counts: list[int], codec: int = 0) -> bytearray:
    return bytearray().join(
        make_batch([bytes([count]) * 40] * count, codec=codec, producer_id=5, producer_epoch=1, base_sequence=at)
        for at, count in enumerate(counts)
    )


def in_object(run: bytes | bytearray, version: int = 0) -> tuple[bytearray, Range]:
    data = bytearray([version]) + run
    return data, Range(SEGMENTS[0], 0, len(data), (0,))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 1 << 40), st.sampled_from([0, GZIP]))
def test_offsets_are_set_and_nothing_else(counts: list[int], base: int, codec: int) -> None:
    produced = some_batches(counts, codec)
    data, range_ = in_object(produced)
    run, bounds = row_batches(data, range_, row(length=len(produced), base=base, last=base + sum(counts) - 1))
    assert [one.last_offset - one.base_offset + 1 for one in bounds] == counts
    assert bounds[0].base_offset == base
    for one in bounds:
        assert int.from_bytes(run[one.position : one.position + 8], "big") == one.base_offset
        assert run[one.position + 8 : one.position + 12] == produced[one.position + 8 : one.position + 12]
        assert run[one.position + 12 : one.position + 16] == bytes(4)  # leader epoch
        assert run[one.position + 16 : one.position + one.length] == produced[one.position + 16 :][: one.length - 16]


def test_append_time_is_stamped_with_a_true_crc_and_twice_is_as_once() -> None:
    produced = some_batches([2, 3])
    stamped = row(length=len(produced), base=10, last=14)._replace(append_time_ms=1_234, log_append_time=True)
    run = bytearray(produced)
    place_batches(run, stamped)
    expected = bytearray(produced)
    patch_offsets(expected, 10, 0, 1_234)
    assert run == expected
    place_batches(run, stamped)
    assert run == expected
    header = read_header(run)
    assert (header.timestamp_type, header.max_timestamp_ms) == (1, 1_234)
    assert crc32c(run[21 : header.length]) == header.crc


def test_bytes_that_nobody_may_write_to_are_copied_and_others_are_not() -> None:
    produced = some_batches([2])
    one = row(length=len(produced), base=3, last=4)
    data, range_ = in_object(produced)
    untouched = bytes(data)
    copy, _ = row_batches(untouched, range_, one)
    assert copy[:8] == (3).to_bytes(8, "big")
    assert untouched == data
    run, _ = row_batches(data, range_, one)
    assert run == copy
    assert data[1:9] == (3).to_bytes(8, "big")


def merged(*bases: int, count: int = 2) -> bytearray:
    """Return batches with this many records each, with their offsets in place."""
    run = bytearray()
    for base in bases:
        batch = some_batches([count])
        patch_offsets(batch, base, 0)
        run += batch
    return run


def test_offsets_in_place_are_checked_and_may_leave_some_out() -> None:
    run = merged(5, 9, 20)
    data, range_ = in_object(run, version=1)
    before = bytes(data)
    found, bounds = row_batches(data, range_, row(length=len(run), base=3, last=21, offsets_in_place=True))
    assert [(one.base_offset, one.last_offset) for one in bounds] == [(5, 6), (9, 10), (20, 21)]
    assert found == run
    assert data == before


@pytest.mark.parametrize(
    ("bases", "base", "last"),
    [((5, 9), 6, 10), ((5, 6), 5, 7), ((9, 5), 5, 10), ((5, 9), 5, 11), ((5, 9), 5, 9), ((), 5, 9)],
)
def test_offsets_in_place_that_are_wrong(bases: tuple[int, ...], base: int, last: int) -> None:
    run = merged(*bases)
    with pytest.raises(RowUnreadable, match=f"offsets {base} to {last}: ") as caught:
        place_batches(run, row(length=len(run), base=base, last=last, offsets_in_place=True))
    assert caught.value.kind == "wrong_offsets"


@pytest.mark.parametrize("last", [3, 5])
def test_another_number_of_records(last: int) -> None:
    produced = some_batches([2, 3])
    with pytest.raises(RowUnreadable, match="the bytes hold offsets to 4") as caught:
        place_batches(produced, row(length=len(produced), last=last))
    assert caught.value.kind == "wrong_offsets"


@given(st.data())
def test_a_flipped_bit_is_found_wherever_it_counts(data: st.DataObject) -> None:
    produced = some_batches([2, 3])
    bit = data.draw(st.integers(0, len(produced) * 8 - 1))
    at = bit // 8
    length = read_header(produced).length
    in_batch = at if at < length else at - length
    if in_batch < 8 or 12 <= in_batch < 16:
        return  # base offset and leader epoch are not the producer's: they are set
    produced[at] ^= 1 << bit % 8
    with pytest.raises(RowUnreadable) as caught:
        place_batches(produced, row(length=len(produced), last=4))
    assert caught.value.kind == "corrupt"


def test_a_row_that_is_cut_off() -> None:
    produced = some_batches([2])
    data, range_ = in_object(produced[:-1])
    with pytest.raises(
        RowUnreadable, match=f"position 1, length {len(produced)}, for offsets 0 to 1: .* cut off"
    ) as caught:
        row_batches(data, range_, row(length=len(produced), last=1))
    assert caught.value.kind == "short"


@pytest.mark.parametrize(("version", "in_place"), [(2, False), (0, True), (1, False)])
def test_a_format_that_is_not_the_rows(version: int, in_place: bool) -> None:
    run = merged(0)
    data, range_ = in_object(run, version)
    with pytest.raises(RowUnreadable, match=f"format is {version}") as caught:
        row_batches(data, range_, row(length=len(run), last=1, offsets_in_place=in_place))
    assert caught.value.kind == "unknown_format"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_unreadable(garbage: bytes) -> None:
    with pytest.raises(RowUnreadable):
        place_batches(bytearray(garbage), row(length=len(garbage), last=10))


def test_the_error_survives_pickling() -> None:
    error = RowUnreadable("short", row(), "text")
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, again.row, str(again)) == ("short", row(), "text")


@pytest.mark.parametrize("committed", [True, False])
async def test_a_marker_is_read_without_an_object_as_a_control_batch(committed: bool) -> None:
    """Checked by another implementation."""
    marker = marker_row(41, producer_id=2**62, committed=committed)
    async with aclosing(fetch_ranges(MemoryObjects(), coalesce([marker]), gets=1, max_bytes_in_flight=1)) as fetched:
        (read,) = [one async for one in fetched]
    range_, data = read
    assert not isinstance(data, RowUnreadable)
    run, bounds = row_batches(data, range_, marker)
    assert [(one.base_offset, one.last_offset, one.length) for one in bounds] == [(41, 41, 78)]
    batch = DefaultRecordBatch(run)
    assert batch.validate_crc()
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, 2**62)
    (record,) = batch
    assert (record.offset, record.timestamp, record.key[2:]) == (41, MARKER_MS, bytes([0, committed]))
