"""Markers in the bytes of a shadow's log, against batches that Kafka's format and other libraries give."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.interface_transactions import Marker
from proxy.markers.batches import MarkersFound, read_markers
from proxy.records.batches import RecordsError, control_batch, patch_offsets
from proxy.records.plain import plain_batch

markers = st.builds(
    Marker,
    offset=st.just(0),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    committed=st.booleans(),
    timestamp_ms=st.integers(0, 2**53 - 1),
    log_append_time=st.booleans(),
)


def control(marker: Marker, leader_epoch: int = 3) -> bytes:
    """Return the control batch of a marker."""
    fields = marker._asdict()
    return control_batch(fields.pop("offset"), leader_epoch, **fields)


@given(st.lists(markers | st.integers(1, 5), max_size=12), st.data())
def test_every_marker_is_found_at_its_offset(parts: list[Marker | int], data: st.DataObject) -> None:
    """Whole batches, with stray records between them, and from any offset on."""
    log, offset, expected = b"", 0, []
    for part in parts:
        if isinstance(part, Marker):
            marker = part._replace(offset=offset)
            log += control(marker)
            expected.append(marker)
            offset += 1
        else:
            stray = bytearray(plain_batch([b"stray"] * part, 1))
            patch_offsets(stray, offset, 3)
            log += stray
            offset += part
    start = data.draw(st.integers(0, offset))
    cut = data.draw(st.integers(0, len(log)))
    found = read_markers(log, start)
    assert found.markers == tuple(one for one in expected if one.offset >= start)
    assert found.next_offset == offset
    some = read_markers(log[:cut], start)
    assert some.markers == tuple(one for one in expected if start <= one.offset < some.next_offset)
    assert start <= some.next_offset <= offset


@given(markers)
def test_another_library_reads_the_same_marker(marker: Marker) -> None:
    records = MemoryRecords(control(marker))
    batch = records.next_batch()
    assert batch is not None
    assert batch.is_control_batch
    assert (batch.producer_id, batch.producer_epoch) == (marker.producer_id, marker.producer_epoch)
    record = next(batch)
    kind = COMMIT_MARKER if marker.committed else ABORT_MARKER
    assert ControlRecord.parse(record.key) == kind
    assert read_markers(control(marker), 0).markers == (marker,)


@given(markers, st.data())
def test_a_damaged_marker_is_an_error_or_cut_off(marker: Marker, data: st.DataObject) -> None:
    """Never another marker than the one that was written, except for the leader epoch, which no checksum covers."""
    damaged = bytearray(control(marker))
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    try:
        found = read_markers(bytes(damaged), 0)
    except RecordsError:
        return
    assert [one._replace(offset=0) for one in found.markers] in ([], [marker])


@given(st.binary(max_size=300), st.integers(0, 100))
def test_any_bytes_are_read_or_rejected(data: bytes, start: int) -> None:
    try:
        found = read_markers(data, start)
    except RecordsError:
        return
    assert found.next_offset >= start


def test_other_control_batches_are_skipped() -> None:
    """The first record of a log with a new leader, as KRaft's own (LEADER_CHANGE, type 2)."""
    batch = bytearray(control(Marker(7, 1, 0, 0, True, 5)))
    batch[61 + 8] = 2
    assert read_markers(with_crc(batch), 0) == MarkersFound((), 8, 3)


def test_a_marker_with_more_fields_than_today() -> None:
    """A later version of the value may be longer."""
    marker = Marker(7, 1, 2, 9, False, 5)
    batch = bytearray(control(marker))
    value_at = 61 + 9
    batch[value_at : value_at + 1] = bytes([2 * 8])
    batch[-1:-1] = b"\0\0"
    batch[61] = 2 * 18
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    assert read_markers(with_crc(batch), 0).markers == (marker,)


def test_a_batch_of_an_old_format_is_an_error() -> None:
    """Brokers of all supported releases store format 2 only."""
    old = (5).to_bytes(8, "big") + (60).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(60)
    with pytest.raises(RecordsError, match="too old"):
        read_markers(old, 0)


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_that_no_batch_has(length: int) -> None:
    with pytest.raises(RecordsError, match="it says"):
        read_markers(bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(30), 0)


def with_crc(batch: bytearray) -> bytes:
    from crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)
