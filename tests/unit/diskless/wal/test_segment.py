"""A segment contains exactly the added batches, grouped by partition, and reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.interface import ProposedBatch, Row
from proxy.diskless.wal import segment as segment_module
from proxy.diskless.wal.segment import (
    MergedBuilder,
    SegmentBuilder,
    SegmentError,
    check_preamble,
    read_segment,
    segment_key,
)
from proxy.records.batches import RecordsError, check_batch, patch_offsets
from tests.batches import make_batch

TOPICS = [b"a" * 16, b"b" * 16]
additions = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 3), st.lists(st.binary(max_size=50), min_size=1, max_size=4)),
    max_size=30,
)


def add(builder: SegmentBuilder, topic_id: bytes, partition: int, batch: bytearray) -> None:
    view = memoryview(batch)
    builder.add(topic_id, partition, view, check_batch(view, max_message_bytes=10_000))


@given(additions)
def test_round_trip(added):
    builder = SegmentBuilder()
    arrived: dict[tuple[bytes, int], list[bytearray]] = {}
    for number, (topic_id, partition, values) in enumerate(added):
        batch = make_batch(values, producer_id=number, producer_epoch=1, base_sequence=number)
        arrived.setdefault((topic_id, partition), []).append(batch)
        add(builder, topic_id, partition, batch)
    built = builder.build()

    assert builder.batch_count == len(added)
    assert len(built.data) == 1 + builder.bytes_buffered
    assert built.data[0] == 0
    assert [(run.topic_id, run.partition) for run in built.runs] == sorted(arrived)
    read = iter(read_segment(built.data))
    end = 1
    for run, batches in zip(built.runs, (arrived[key] for key in sorted(arrived)), strict=True):
        assert run.position == end
        for proposed, batch in zip(run.batches, batches, strict=True):
            assert built.data[end : end + len(batch)] == batch
            position, header = next(read)
            assert position == end
            assert proposed == ProposedBatch(
                header.length,
                header.record_count,
                header.max_timestamp_ms,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            )
            end += len(batch)
    assert next(read, None) is None
    assert end == len(built.data)


def test_the_same_batches_under_a_second_name():
    builder = SegmentBuilder()
    add(builder, TOPICS[0], 0, make_batch())
    first, second, named = builder.build(), builder.build(), builder.build(b"n" * 16)
    assert first.data == second.data == named.data
    assert first.data is not second.data
    assert len({first.segment, second.segment, named.segment}) == 3
    assert named.segment == b"n" * 16
    assert len(first.segment) == 16


def test_removed_batches_leave_nothing_behind():
    batch = make_batch()
    header = check_batch(memoryview(batch), max_message_bytes=1 << 20)
    builder = SegmentBuilder()
    builder.add(TOPICS[0], 0, memoryview(batch), header, log_append_time=True)
    builder.discard(TOPICS[0], 0)
    assert (builder.batch_count, builder.bytes_buffered) == (0, 0)
    builder.add(TOPICS[0], 0, memoryview(batch), header)
    assert [run.log_append_time for run in builder.build().runs] == [False]


def test_batches_are_not_copied_before_they_are_built():
    batch = make_batch([b"value"])
    builder = SegmentBuilder()
    add(builder, TOPICS[0], 0, batch)
    batch[-2] = ord("X")
    assert builder.build().data[1:] == batch


def test_key_is_the_uuid_in_hex_under_a_folder():
    assert segment_key(bytes(range(16))) == "00/000102030405060708090a0b0c0d0e0f"


def test_an_invalid_segment_is_rejected():
    with pytest.raises(SegmentError, match="empty"):
        list(read_segment(b""))
    with pytest.raises(SegmentError, match="unknown format version 2"):
        list(read_segment(b"\x02" + make_batch()))
    read = read_segment(b"\0" + make_batch() + make_batch()[:-1])
    assert next(read).position == 1
    with pytest.raises(RecordsError):
        next(read)


def placed(values: list[bytes], base_offset: int) -> bytearray:
    """A batch with its offsets."""
    batch = make_batch(values)
    patch_offsets(batch, base_offset, 0)
    return batch


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.lists(st.binary(max_size=20), min_size=1, max_size=3)), min_size=1),
        min_size=1,
        max_size=5,
    )
)
def test_a_merged_object_holds_rows_with_their_offsets(partitions):
    """Each partition: batches, with how many offsets are left out before each."""
    builder = MergedBuilder(b"m" * 16)
    expected: list[tuple[int, int]] = []
    for number, batches in enumerate(partitions):
        base = end = 10 * number
        run = []
        for left_out, values in batches:
            end += left_out
            run.append(placed(values, end))
            expected.append((end, len(run[-1])))
            end += len(values)
        row = builder.add(run, base_offset=base, last_offset=end - 1, max_timestamp_ms=5, append_time_ms=number)
        assert row[:3] == (base, end - 1, b"m" * 16)
        assert row[5:] == (5, number, False, True)
        assert builder.data[row.position : row.position + row.length] == b"".join(run)
    assert builder.data[:1] == b"\x01"
    assert [row.position for row in builder.rows] == [1, *(row.position + row.length for row in builder.rows[:-1])]
    assert builder.size_bytes == len(builder.data) == 1 + sum(row.length for row in builder.rows)
    found = [(one.position, one.header.length) for one in read_segment(builder.data)]
    assert [length for _, length in found] == [length for _, length in expected]
    assert [int.from_bytes(builder.data[at : at + 8], "big") for at, _ in found] == [base for base, _ in expected]


@pytest.mark.parametrize(("base", "last"), [(6, 8), (5, 7), (5, 9), (9, 8)])
def test_a_row_that_its_batches_are_not_within_is_not_added(base, last):
    builder = MergedBuilder()
    run = [placed([b"a"], 5), placed([b"b", b"c"], 7)]
    with pytest.raises(RecordsError):
        builder.add(run, base_offset=base, last_offset=last, max_timestamp_ms=0, append_time_ms=0)
    for broken in (run[::-1], [run[0], run[0]], [run[0][:-1], run[1]], []):
        with pytest.raises(RecordsError):
            builder.add(broken, base_offset=0, last_offset=8, max_timestamp_ms=0, append_time_ms=0)
    assert (builder.rows, builder.data) == ([], b"\x01")
    assert builder.add(run, base_offset=3, last_offset=8, max_timestamp_ms=0, append_time_ms=0) == Row(
        3, 8, builder.segment, 1, sum(map(len, run)), 0, 0, offsets_in_place=True
    )


def test_a_merged_object_is_never_larger_than_positions_reach(monkeypatch):
    run = placed([b"a"], 0)
    monkeypatch.setattr(segment_module, "MAX_OBJECT_BYTES", 1 + len(run))
    builder = MergedBuilder()
    builder.add(run, base_offset=0, last_offset=0, max_timestamp_ms=0, append_time_ms=0)
    with pytest.raises(ValueError, match="can't be addressed"):
        builder.add(placed([b"a"], 1), base_offset=1, last_offset=1, max_timestamp_ms=0, append_time_ms=0)
    assert len(builder.rows) == 1


def test_attempts_have_names_of_their_own():
    assert MergedBuilder().segment != MergedBuilder().segment
    assert (check_preamble(b"\0"), check_preamble(b"\x01")) == (0, 1)
