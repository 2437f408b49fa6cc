"""Any bytes give batches, then the end or one of the two errors; windows of any size give the same."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.diskless.wal.segment import SegmentError, read_segment
from proxy.inspection import dump
from proxy.inspection.dump import dumped_batches, owner_of
from proxy.inspection.segments import Extent
from proxy.records.batches import RecordsError, patch_offsets
from tests.batches import make_batch

SEGMENT = b"\0" + b"".join(bytes(make_batch([bytes(size)])) for size in (0, 1, 300, 5_000))


@dataclass
class Bytes:
    data: bytes
    most_at_once: int = 0

    async def read(self, start: int, end: int) -> bytes:
        self.most_at_once = max(self.most_at_once, end - start)
        return self.data[start:end]


async def dumped(data: bytes) -> tuple[list[tuple[int, int, bool]], str]:
    """Return position, length and validity of all batches before the end or the error, and the error's text."""
    found = []
    try:
        async for batch in dumped_batches(Bytes(data)):
            length = batch.header.length
            found.append((batch.position, length, batch.is_valid))
    except (SegmentError, RecordsError) as error:
        return found, str(error)
    return found, ""


@given(at=st.integers(0, len(SEGMENT) - 1), flip=st.integers(0, 255), cut=st.integers(0, len(SEGMENT)))
async def test_broken_segments_are_read_as_far_as_they_go(at: int, flip: int, cut: int) -> None:
    data = bytearray(SEGMENT)
    data[at] ^= flip
    found, error = await dumped(bytes(data[:cut]))
    whole = [(one.position, one.header.length) for one in read_segment(SEGMENT)]
    untouched = [one for one in whole if sum(one) <= min(cut, at if flip else cut)]
    assert [one[:2] for one in found[: len(untouched)]] == untouched
    assert all(valid for _, _, valid in found[: len(untouched)])
    if not flip:
        assert bool(error) == (cut != 1 and cut not in [sum(one) for one in whole])


@given(window=st.integers(1, 10_000))
async def test_the_size_of_reads_changes_nothing(window: int) -> None:
    before, dump.WINDOW_BYTES = dump.WINDOW_BYTES, window
    try:
        found, error = await dumped(SEGMENT)
    finally:
        dump.WINDOW_BYTES = before
    assert (found, error) == ([(one.position, one.header.length, True) for one in read_segment(SEGMENT)], "")


async def test_no_more_than_a_window_is_read_at_once() -> None:
    source = Bytes(b"\0" + bytes(make_batch([bytes(1_000)])) * 20_000)
    assert len([batch async for batch in dumped_batches(source)]) == 20_000
    assert source.most_at_once == dump.WINDOW_BYTES < len(source.data)


async def test_a_batch_belongs_to_the_extent_that_it_lies_in() -> None:
    first, second, *_ = [batch async for batch in dumped_batches(Bytes(SEGMENT))]
    extent = Extent("a", 0, 5, 5, second.position, second.header.length)
    assert owner_of(first, [extent]) is None
    assert owner_of(second, [extent]) is extent
    assert owner_of(second, [extent._replace(length=extent.length - 1)]) is None


async def test_batches_of_a_merged_object_have_their_offsets() -> None:
    run = bytearray(SEGMENT[1:])
    bounds = patch_offsets(run, 70, 0)
    merged = [batch async for batch in dumped_batches(Bytes(b"\x01" + bytes(run)))]
    assert [(one.base_offset, one.has_offset, one.is_valid) for one in merged] == [
        (one.base_offset, True, True) for one in bounds
    ]
    assert not any([batch.has_offset async for batch in dumped_batches(Bytes(SEGMENT))])
