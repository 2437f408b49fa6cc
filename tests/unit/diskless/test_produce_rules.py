"""Requirements of topic configs on a batch: record times, codecs, sizes; read back with another client's reader."""

from __future__ import annotations

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from proxy.diskless.produce_rules import (
    NO_BOUND_MS,
    UNKNOWN_SERVER_ERROR,
    ProduceRules,
    prepare_batch,
    rules_of,
)
from proxy.diskless.produced_records import MOST_RECORD_ERRORS
from proxy.protocol.errors import INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from proxy.records.batches import RecordsError, check_batch, read_header
from proxy.records.compression import LZ4, NAMES, NONE, SNAPPY, ZSTD, compress
from tests.batches import GZIP, HEADER_BYTES, make_batch, make_timed_batch

NOW_MS = 1_700_000_000_000
LARGE = 1 << 20
DEFAULT = rules_of({})
values = st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=20)
codecs = st.integers(0, 4)


def prepare(batch: bytearray, rules: ProduceRules, limit: int = LARGE):
    header = check_batch(memoryview(batch), max_message_bytes=LARGE)
    return prepare_batch(memoryview(batch), header, rules, NOW_MS, max_decompressed_bytes=limit, max_records=100_000)


def refused(batch: bytearray, rules: ProduceRules, limit: int = LARGE) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        prepare(batch, rules, limit)
    return caught.value


def content(batch: bytes | bytearray | memoryview) -> list[tuple[int, int, bytes | None]]:
    return [(record.offset, record.timestamp, record.value) for record in DefaultRecordBatch(bytes(batch))]


def test_configs_become_rules() -> None:
    assert DEFAULT == (1_048_588, False, NO_BOUND_MS, 3_600_000, None, None, False, "", 0.0)
    set_ = {
        "max.message.bytes": "5",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "6",
        "message.timestamp.after.max.ms": "7",
        "compression.type": "zstd",
        "compression.zstd.level": "-4",
        "compression.gzip.level": "2",
        "diskless.append.latency.ms": "1500",
    }
    assert rules_of(set_) == (5, True, 6, 7, ZSTD, -4, False, "", 1.5)
    assert rules_of({"compression.type": "lz4"})[4:6] == (LZ4, 9)
    assert rules_of({"compression.type": "snappy"})[4:6] == (SNAPPY, None)
    assert rules_of({"compression.type": "uncompressed"})[4:6] == (NONE, None)
    assert rules_of({"compression.type": "producer", "compression.zstd.level": "5"})[4:6] == (None, None)


@pytest.mark.parametrize("wanted", range(5), ids=NAMES)
@given(values=values, codec=codecs)
def test_batches_of_every_codec_become_those_of_the_wanted_one(wanted: int, values, codec: int) -> None:
    batch = make_batch(
        values, codec=codec, timestamp_ms=NOW_MS, producer_id=2**62, producer_epoch=3, base_sequence=2**31 - 1
    )
    before = read_header(batch)
    made, header = prepare(batch, DEFAULT._replace(codec=wanted))
    assert check_batch(made, max_message_bytes=LARGE) == header
    assert header == before._replace(length=len(made), crc=header.crc, attributes=wanted)
    assert content(made) == content(batch)
    assert DefaultRecordBatch(bytes(made)).validate_crc()


def test_the_batches_whose_records_are_read() -> None:
    header = read_header(make_batch(codec=GZIP, timestamp_ms=NOW_MS))
    late = header._replace(max_timestamp_ms=NOW_MS + 3_600_001)
    bounded = rules_of({"message.timestamp.before.max.ms": "5"})
    append_time = rules_of({"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "5"})
    assert not DEFAULT.needs_preparing(header, NOW_MS)
    assert not DEFAULT.needs_preparing(late._replace(max_timestamp_ms=NOW_MS + 3_600_000), NOW_MS)
    assert DEFAULT.needs_preparing(late, NOW_MS)
    assert bounded.needs_preparing(header, NOW_MS)
    assert not append_time.needs_preparing(late, NOW_MS)
    assert not DEFAULT._replace(codec=GZIP).needs_preparing(header, NOW_MS)
    assert append_time._replace(codec=LZ4).needs_preparing(header, NOW_MS)


@given(
    times=st.lists(st.integers(NOW_MS - 20, NOW_MS + 20) | st.just(-1), min_size=1, max_size=8),
    before=st.integers(0, 20),
    after=st.integers(0, 20),
    codec=codecs,
)
def test_every_record_has_to_lie_within_the_bounds(times, before: int, after: int, codec: int) -> None:
    batch = make_timed_batch(times, codec=codec)
    rules = DEFAULT._replace(before_max_ms=before, after_max_ms=after)
    wrong = [place for place, one in enumerate(times) if one != -1 and not -before <= one - NOW_MS <= after]
    if wrong:
        error = refused(batch, rules)
        assert (error.error_code, [place for place, _ in error.record_errors]) == (INVALID_TIMESTAMP, wrong)
        assert f"within [{NOW_MS - before}, {NOW_MS + after}]" in error.record_errors[0][1]
    else:
        made, header = prepare(batch, rules)
        assert bytes(made) == batch
        assert header.max_timestamp_ms == max(times)
    untouched, _ = prepare(batch, rules._replace(log_append_time=True))
    assert bytes(untouched) == batch


@given(codec=codecs, claimed=st.integers(NOW_MS + 4_000_000, 2**62))
def test_a_wrong_maximum_timestamp_is_corrected(codec: int, claimed: int) -> None:
    times_ms = [NOW_MS, NOW_MS + 5, NOW_MS + 3]
    good = make_timed_batch(times_ms, codec=codec)
    # Packed again, the records might be other bytes: gzip writes the second in which it packs.
    lying = make_timed_batch(times_ms, codec=codec, claimed_ms=claimed, payload=bytes(good[HEADER_BYTES:]))
    made, header = prepare(lying, DEFAULT)
    assert bytes(made) == good
    assert header == read_header(good)


@pytest.mark.parametrize("codec", range(5), ids=NAMES)
def test_a_batch_that_became_too_large_is_rejected(codec: int) -> None:
    batch = make_batch([b"x" * 4_000], codec=codec, timestamp_ms=NOW_MS)
    other = SNAPPY if codec == NONE else NONE
    made, header = prepare(batch, DEFAULT._replace(codec=other))
    fits = DEFAULT._replace(codec=other, max_message_bytes=header.length)
    assert bytes(prepare(batch, fits)[0]) == bytes(made)
    assert refused(batch, fits._replace(max_message_bytes=header.length - 1)).error_code == MESSAGE_TOO_LARGE
    assert refused(batch, fits._replace(max_message_bytes=3_999), 3_999).error_code == MESSAGE_TOO_LARGE


def test_records_that_are_not_what_the_header_says() -> None:
    times = [NOW_MS, NOW_MS]
    records = bytes(make_timed_batch(times)[HEADER_BYTES:])
    for codec, payload, code in (
        (0, records[:-1], INVALID_RECORD),
        (0, records + b"\0", INVALID_RECORD),
        (0, b"\xff" * 20, INVALID_RECORD),
        (1, bytes(compress(1, records[:-3])), INVALID_RECORD),
        (1, b"no gzip", UNKNOWN_SERVER_ERROR),
    ):
        batch = make_timed_batch(times, codec=codec, payload=payload)
        assert refused(batch, DEFAULT._replace(codec=LZ4)).error_code == code


def test_a_batch_with_too_many_records_is_rejected_before_it_is_decompressed() -> None:
    batch = make_timed_batch([NOW_MS] * 4, codec=GZIP, payload=b"no gzip")
    header = check_batch(memoryview(batch), max_message_bytes=LARGE)
    limits = {"max_decompressed_bytes": LARGE, "max_records": 3}
    with pytest.raises(RecordsError, match="max_prepared_batch_records") as caught:
        prepare_batch(memoryview(batch), header, DEFAULT._replace(codec=LZ4), NOW_MS, **limits)
    assert caught.value.error_code == MESSAGE_TOO_LARGE


def test_a_batch_that_fits_without_compression_is_not_too_large_with_it() -> None:
    batch = make_batch([b"x" * 4_000], codec=GZIP, timestamp_ms=NOW_MS)
    made, _ = prepare(batch, DEFAULT._replace(codec=NONE), 1_024)
    assert len(made) > 4_000


def test_only_the_first_records_that_are_wrong_are_named() -> None:
    error = refused(make_timed_batch([NOW_MS + 2 * 3_600_000] * (MOST_RECORD_ERRORS + 5)), DEFAULT)
    assert (error.error_code, len(error.record_errors)) == (INVALID_TIMESTAMP, MOST_RECORD_ERRORS)


def test_records_that_cannot_be_there_are_not_looked_for() -> None:
    batch = make_timed_batch([NOW_MS] * 50, codec=GZIP, payload=bytes(compress(GZIP, b"\0" * 100)))
    error = refused(batch, DEFAULT._replace(codec=LZ4))
    assert (error.error_code, str(error)) == (INVALID_RECORD, "50 records cannot lie in 100 decompressed bytes")


def test_a_failed_compression_is_an_error_of_the_batch(monkeypatch) -> None:
    def fail(*_):
        raise cramjam.CompressionError("no")

    monkeypatch.setattr("proxy.records.compression._lz4_compressed", fail)
    assert refused(make_batch(timestamp_ms=NOW_MS), DEFAULT._replace(codec=LZ4)).error_code == UNKNOWN_SERVER_ERROR
