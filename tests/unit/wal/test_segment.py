"""A segment holds exactly what was added, grouped by partition, and reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.interface import ProposedBatch
from proxy.records import RecordsError, check_batch
from proxy.wal.segment import SegmentBuilder, SegmentError, read_segment, segment_key
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
    assert [(run.topic_id, run.partition) for run in built.runs] == list(arrived)
    read = iter(read_segment(built.data))
    end = 1
    for run, batches in zip(built.runs, arrived.values(), strict=True):
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


def test_what_is_taken_out_leaves_nothing_behind():
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


def test_what_is_no_segment_is_refused():
    with pytest.raises(SegmentError, match="empty"):
        list(read_segment(b""))
    with pytest.raises(SegmentError, match="version 1 is not known"):
        list(read_segment(b"\x01" + make_batch()))
    read = read_segment(b"\0" + make_batch() + make_batch()[:-1])
    assert next(read).position == 1
    with pytest.raises(RecordsError):
        next(read)
