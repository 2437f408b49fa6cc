"""Record batches of an independent writer pass; each wrong byte is found; patched batches read back."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from proxy.records.batches import (
    HEADER_BYTES,
    BatchBounds,
    RecordsError,
    check_batch,
    check_offsets,
    patch_offsets,
    read_header,
)
from tests.batches import ZSTD, make_batch

MEGABYTE = 1_048_576
values_lists = st.lists(st.one_of(st.none(), st.binary(max_size=200)), min_size=1, max_size=20)
codecs = st.integers(0, ZSTD)


def check(batch: bytes | bytearray, max_message_bytes: int = MEGABYTE):
    return check_batch(memoryview(batch), max_message_bytes=max_message_bytes)


def refused(batch: bytes | bytearray, max_message_bytes: int = MEGABYTE) -> int:
    with pytest.raises(RecordsError) as caught:
        check(batch, max_message_bytes)
    return caught.value.error_code


def with_field(batch: bytearray, layout: str, position: int, value: int) -> bytearray:
    """The batch with one field changed and its CRC set right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return changed


@given(values_lists, codecs, st.booleans(), st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
def test_header_is_what_another_reader_sees(values, codec, transactional, producer_id, epoch, sequence):
    batch = make_batch(
        values,
        codec=codec,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    header = check(batch)
    other = DefaultRecordBatch(bytes(batch))
    assert header.length == len(batch)
    assert header.magic == other.magic
    assert header.crc == other.crc
    assert header.compression == codec
    assert header.timestamp_type == other.timestamp_type == 0
    assert header.is_transactional is transactional is other.is_transactional
    assert header.is_control is False
    assert header.max_timestamp_ms == other.max_timestamp == header.base_timestamp_ms + len(values) - 1
    assert header.record_count == len(values) == header.last_offset_delta + 1
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert read_header(b"?" + batch, 1) == header


@given(values_lists, codecs, st.data())
def test_any_wrong_byte_is_found(values, codec, data):
    batch = make_batch(values, codec=codec)
    position = data.draw(st.integers(0, len(batch) - 1).filter(lambda place: not 12 <= place < 16))
    batch[position] ^= data.draw(st.integers(1, 255))
    assert refused(batch) in (CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE)


def test_every_flipped_bit_is_found():
    batch = make_batch([b"one", None, b"three"], producer_id=7, producer_epoch=1, base_sequence=2)
    for position in range(len(batch)):
        for bit in range(8):
            changed = bytearray(batch)
            changed[position] ^= 1 << bit
            if 12 <= position < 16:  # the partition leader epoch is for the broker to set
                assert check(changed).record_count == 3
            else:
                refused(changed)


@given(st.binary(max_size=200))
@example(b"")
@example(bytes(16))
@example(bytes(HEADER_BYTES))
def test_any_bytes_pass_or_raise_the_one_error(noise):
    codes = set()
    for read in (lambda: check(noise), lambda: read_header(noise), lambda: patch_offsets(bytearray(noise), 0, 0)):
        try:
            read()
        except RecordsError as error:
            codes.add(error.error_code)
    assert codes <= {CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE}


def test_length_must_be_that_of_the_bytes():
    batch = make_batch([b"x"] * 3)
    assert refused(batch[:-1]) == INVALID_RECORD
    assert refused(batch + b"\0") == INVALID_RECORD
    assert refused(batch + make_batch()) == INVALID_RECORD
    assert refused(b"") == INVALID_RECORD
    assert refused(batch[:40]) == INVALID_RECORD
    assert refused(with_field(batch, ">i", 8, -1)) == CORRUPT_MESSAGE
    assert refused(with_field(batch, ">i", 8, HEADER_BYTES - 13)) == CORRUPT_MESSAGE


@pytest.mark.parametrize(("magic", "code"), [(0, INVALID_RECORD), (1, INVALID_RECORD), (3, 2), (-1, 2)])
def test_only_magic_2(magic, code):
    assert refused(with_field(make_batch([b"x" * 100]), ">b", 16, magic)) == code


def test_a_short_batch_of_an_old_format_is_called_old():
    message_v1 = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 0, -1, -1)
    assert len(message_v1) < HEADER_BYTES
    with pytest.raises(RecordsError, match="too old") as caught:
        check(message_v1)
    assert caught.value.error_code == INVALID_RECORD


def test_size_limit_is_inclusive():
    batch = make_batch([b"x" * 100])
    assert check(batch, len(batch)).length == len(batch)
    assert refused(batch, len(batch) - 1) == MESSAGE_TOO_LARGE


def test_base_offset_must_be_unset():
    batch = make_batch()
    patch_offsets(batch, 5, 0)
    assert refused(batch) == INVALID_RECORD


@pytest.mark.parametrize(
    ("layout", "position", "value", "code"),
    [
        (">h", 21, 5, UNSUPPORTED_COMPRESSION_TYPE),
        (">h", 21, 7, UNSUPPORTED_COMPRESSION_TYPE),
        (">h", 21, 0x20, INVALID_RECORD),
        (">h", 21, 0x08, INVALID_TIMESTAMP),
        (">h", 21, 0x10, INVALID_RECORD),
        (">i", 23, 3, INVALID_RECORD),
        (">i", 23, -1, INVALID_RECORD),
        (">i", 57, 0, INVALID_RECORD),
        (">i", 57, -1, INVALID_RECORD),
        (">i", 57, 4, INVALID_RECORD),
        (">q", 43, 5, INVALID_RECORD),
        (">q", 43, -2, INVALID_RECORD),
    ],
)
def test_fields_that_a_broker_refuses(layout, position, value, code):
    batch = make_batch([b"a", b"b", b"c"])
    assert check(with_field(batch, ">h", 21, 0)).record_count == 3
    assert refused(with_field(batch, layout, position, value)) == code


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_idempotent_batches_need_epoch_and_sequence(epoch, sequence):
    good = make_batch(producer_id=0, producer_epoch=0, base_sequence=0)
    assert check(good).producer_id == 0
    assert refused(with_field(with_field(good, ">h", 51, epoch), ">i", 53, sequence)) == INVALID_RECORD


def test_record_count_must_fit_the_bytes_unless_compressed():
    batch = make_batch([None] * 10)
    assert len(batch) - HEADER_BYTES == 10 * 7
    assert check(batch).record_count == 10
    eleven = with_field(with_field(batch, ">i", 57, 11), ">i", 23, 10)
    assert refused(eleven) == INVALID_RECORD
    assert check(with_field(eleven, ">h", 21, ZSTD)).record_count == 11


@given(
    st.lists(st.tuples(values_lists, codecs), min_size=1, max_size=8), st.integers(0, 2**62), st.integers(0, 2**31 - 1)
)
def test_patched_batches_read_back_at_their_offsets(contents, base_offset, leader_epoch):
    batches = [make_batch(values, codec=codec) for values, codec in contents]
    run = bytearray().join(batches)
    bounds = patch_offsets(memoryview(run), base_offset, leader_epoch)

    offset, position = base_offset, 0
    for (values, _), batch, bound in zip(contents, batches, bounds, strict=True):
        assert bound == BatchBounds(position, len(batch), offset, offset + len(values) - 1)
        patched = bytes(run[position : position + len(batch)])
        assert patched[16:] == batch[16:]
        assert read_header(patched).partition_leader_epoch == leader_epoch
        other = DefaultRecordBatch(patched)
        assert other.validate_crc()
        assert [(record.offset, record.value) for record in other] == list(enumerate(values, offset))
        offset += len(values)
        position += len(batch)
    assert position == len(run)


def test_an_empty_run_has_no_bounds():
    assert patch_offsets(bytearray(), 5, 0) == []


@given(st.integers(1, 200))
def test_a_run_that_is_cut_off_is_rejected(missing):
    run = make_batch([b"x" * 50]) + make_batch([b"y" * 80])
    del run[-missing:]
    whole = len(run) in (0, len(make_batch([b"x" * 50])))
    if whole:
        assert len(patch_offsets(run, 0, 0)) == 1
    else:
        with pytest.raises(RecordsError) as caught:
            patch_offsets(run, 0, 0)
        assert caught.value.error_code == CORRUPT_MESSAGE


def test_a_read_only_run_is_refused_by_python():
    with pytest.raises(TypeError):
        patch_offsets(memoryview(bytes(make_batch())), 0, 0)


@given(
    st.lists(st.tuples(values_lists, codecs), min_size=1, max_size=5), st.integers(0, 2**62), st.integers(0, 2**53 - 1)
)
def test_under_log_append_time_all_records_have_the_one_time(contents, base_offset, time_ms):
    batches = [make_batch(values, codec=codec) for values, codec in contents]
    run = bytearray().join(batches)
    for again in range(2):  # like a reader that patches what another one has patched
        bounds = patch_offsets(run, base_offset, 7, log_append_time_ms=time_ms)
        for (values, _), batch, bound in zip(contents, batches, bounds, strict=True):
            patched = bytes(run[bound.position : bound.position + bound.length])
            header = read_header(patched)
            assert (header.timestamp_type, header.max_timestamp_ms) == (1, time_ms), again
            assert header.base_timestamp_ms == read_header(batch).base_timestamp_ms
            assert header.compression == read_header(batch).compression
            other = DefaultRecordBatch(patched)
            assert other.validate_crc()
            assert [(one.timestamp, one.timestamp_type, one.value) for one in other] == [
                (time_ms, 1, value) for value in values
            ]
            assert patched[HEADER_BYTES:] == batch[HEADER_BYTES:]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(0, 2**40), st.sets(st.integers(0, 4)))
def test_offsets_in_place_are_those_that_were_patched_also_with_batches_left_out(counts, base_offset, left_out):
    run = bytearray().join(make_batch([b"x"] * count) for count in counts)
    patched = patch_offsets(run, base_offset, 0)
    assert check_offsets(run, base_offset, patched[-1].last_offset) == patched
    kept = [batch for number, batch in enumerate(patched) if number not in left_out]
    run = bytearray().join(run[batch.position : batch.position + batch.length] for batch in kept)
    if not kept:
        with pytest.raises(RecordsError):
            check_offsets(run, base_offset, base_offset)
        return
    found = check_offsets(bytes(run), base_offset, kept[-1].last_offset)
    assert [one[1:] for one in found] == [one[1:] for one in kept]
    for base, last in ((kept[0].base_offset + 1, kept[-1].last_offset), (base_offset, kept[-1].last_offset + 1)):
        with pytest.raises(RecordsError):
            check_offsets(run, base, last)


@given(st.integers(0, 2**31), st.data())
def test_runs_with_offsets_are_read_right_or_rejected_with_the_one_error(base_offset, data):
    run = bytearray(make_batch([b"a"]) + make_batch([b"b", b"c"]))
    patch_offsets(run, base_offset, 0)
    at = data.draw(st.integers(0, len(run) - 1))
    run[at] ^= data.draw(st.integers(1, 255))
    del run[data.draw(st.integers(0, len(run))) :]
    try:
        found = check_offsets(run, base_offset, base_offset + 2)
    except RecordsError:
        return
    offset = base_offset
    for batch in found:
        assert offset <= batch.base_offset <= batch.last_offset
        offset = batch.last_offset + 1
    assert (offset, sum(batch.length for batch in found)) == (base_offset + 3, len(run))
