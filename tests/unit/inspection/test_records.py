"""Records of a batch from another library's writer, and arbitrary bytes: read, or rejected with the one error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from proxy.inspection import records as module
from proxy.inspection.dump import DumpedBatch
from proxy.inspection.lines import batch_as_json, record_line
from proxy.inspection.records import Record, end_marker, read_records
from proxy.records.batches import HEADER_BYTES, RecordsError, control_batch, read_header
from tests.batches import GZIP, LZ4, SNAPPY, ZSTD, make_batch

VALUES = [b"first", None, b"", b"x" * 70_000, "ä€😀".encode()]
CODECS = [0, GZIP, SNAPPY, LZ4, ZSTD]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(codec: int) -> None:
    batch = memoryview(make_batch(VALUES, codec=codec, timestamp_ms=5_000))
    found = list(read_records(batch, read_header(batch)))
    assert [record.value for record in found] == VALUES
    assert [record.offset_delta for record in found] == [0, 1, 2, 3, 4]
    assert [record.timestamp_ms for record in found] == [5_000, 5_001, 5_002, 5_003, 5_004]


def test_append_time_is_every_records_time() -> None:
    batch = make_batch(VALUES, timestamp_ms=5_000)
    batch[22] |= 0x08
    found = list(read_records(memoryview(batch), read_header(batch)))
    assert {record.timestamp_ms for record in found} == {5_004}


def test_a_batch_that_would_become_too_large_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNCOMPRESSED_BYTES", 50_000)
    batch = memoryview(make_batch([bytes(100_000)], codec=ZSTD))
    with pytest.raises(RecordsError, match="50000"):
        list(read_records(batch, read_header(batch)))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_last_record_are_rejected(codec: int) -> None:
    batch = make_batch([b"one", b"two"], codec=codec)
    batch[57:61] = (1).to_bytes(4, "big")  # the record count
    with pytest.raises(RecordsError, match="follow the last"):
        list(read_records(memoryview(batch), read_header(batch)))


@given(st.data())
def test_broken_records_are_read_or_rejected_with_the_one_error(data: st.DataObject) -> None:
    batch = make_batch([b"value", None, b"another"], codec=data.draw(st.sampled_from(CODECS)))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    with suppress(RecordsError):
        list(read_records(memoryview(batch), read_header(batch)))


@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_of_a_transaction_is_printed_as_kafkas_tool_does(committed: bool) -> None:
    """`kafka-dump-log` of 4.3.1 printed this for the same bytes."""
    packed = control_batch(
        9,
        0,
        producer_id=70,
        producer_epoch=1,
        coordinator_epoch=5,
        committed=committed,
        timestamp_ms=1_700_000_009_000,
        log_append_time=False,
    )
    batch = DumpedBatch(1, read_header(packed), memoryview(packed), 9, True, True)
    (record,) = read_records(batch.data, batch.header)
    outcome = "COMMIT" if committed else "ABORT"
    assert record_line(record, batch, 9) == (
        "| offset: 9 CreateTime: 1700000009000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        f"endTxnMarker: {outcome} coordinatorEpoch: 5"
    )
    (shown,) = batch_as_json(batch, 9, None, False, [record], None)["records"]
    assert (shown["endTxnMarker"], shown["coordinatorEpoch"]) == (outcome, 5)


@given(st.one_of(st.none(), st.binary(max_size=8)), st.one_of(st.none(), st.binary(max_size=8)))
def test_other_control_records_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    found = end_marker(Record(0, 0, key, value, ()))
    assert found is None or (key is not None and key[2:4] in (b"\0\0", b"\0\1"))
