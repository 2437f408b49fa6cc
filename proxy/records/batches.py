"""Record batch v2 headers: check those that producers send, patch those that readers get. Sans-io, no decompression.

A batch (Kafka's `DefaultRecordBatch`) is 61 bytes of header, followed by its records, compressed as a whole or not at
all. Base offset, length and partition leader epoch lie before the bytes that the CRC covers, so they can be set without
touching anything else. The fields that LogAppendTime sets are covered by it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from proxy.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)

MAGIC = 2
HEADER_BYTES = 61
LENGTH_END = 12
"""Bytes of base offset and length, which the length in the header leaves out."""
CRC_COVERS_FROM = 21
SMALLEST_RECORD_BYTES = 7
"""A record's length, attributes, two deltas, two empty lengths and a header count of a byte each."""
SMALLEST_LEGACY_BYTES = 14
"""Kafka's `LegacyRecord.RECORD_OVERHEAD_V0`: no batch of any format says a smaller length."""

CODEC_ZSTD = 4
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_CODEC_POSITION = 22
_CRC_POSITION = 17
_MAX_TIMESTAMP_POSITION = 35
_CRC = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">q")

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BOUNDS = struct.Struct(">8xi4xb6xi")
"""Fields of a header: length, magic, last offset delta."""
_MAX_LAST_OFFSET_DELTA = 2**31 - 1
_PLACED = struct.Struct(">qi4xb6xi")
"""Same as `_BOUNDS`, with the base offset before it."""
_PATCH = struct.Struct(">qii")
"""The part before magic and CRC: base offset, length, partition leader epoch."""


_MARKER = struct.Struct(">BBBBBhhBhiB")
"""The record of a control batch: `_MARKER_LENGTHS`; length of the key, version and type (0 abort, 1 commit); length of
the value, version and coordinator epoch; number of headers."""
CONTROL_BATCH_BYTES = HEADER_BYTES + _MARKER.size
"""Length of the batch that ends a transaction."""
_MARKER_LENGTHS = (2 * 16, 0, 0, 0)
"""Length of the record (varint), attributes, timestamp delta, offset delta."""
_KEY_LENGTH, _VALUE_LENGTH = 2 * 4, 2 * 6


class RecordsError(Exception):
    """The bytes are not what a broker would append. `error_code` is Kafka's; the text names the finding.

    `record_errors` has (place in the batch, text) of the offending records, if single records are at fault (KIP-467).
    """

    def __init__(self, error_code: int, text: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(text)
        self.error_code = error_code
        self.record_errors = record_errors


class BatchHeader(NamedTuple):
    """The header of one record batch, without its base offset."""

    length: int
    """Bytes of the whole batch, with the 12 of base offset and length."""
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """Codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return 1 if self.attributes & _LOG_APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Holds a transaction marker, which no client may write."""
        return bool(self.attributes & _CONTROL)


class BatchBounds(NamedTuple):
    """Position and length of one batch in a run of batches, and its offsets there."""

    position: int
    """Position of its first byte, in bytes from the beginning of the run."""
    length: int
    base_offset: int
    last_offset: int


def read_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`, whose bytes must all be present. Its CRC is not computed.

    Raises RecordsError (CORRUPT_MESSAGE, INVALID_RECORD) if there is no whole v2 batch.
    """
    remaining = len(data) - position
    if remaining < HEADER_BYTES:
        raise _too_short(data, position, remaining)
    fields = _HEADER.unpack_from(data, position)
    length = fields[1] + LENGTH_END
    if fields[3] != MAGIC:
        raise _wrong_magic(fields[3])
    if not HEADER_BYTES <= length <= remaining:
        raise _wrong_length(length, remaining)
    return BatchHeader(length, *fields[2:])


def producer_id_of(records: memoryview | None) -> int:
    """Return the producer ID that the first batch claims, checked or not; -1 if there is none."""
    return producer_of(records)[0]


def producer_of(records: memoryview | None) -> tuple[int, int, int]:
    """Return producer ID, epoch and base sequence that the first batch claims, checked or not; -1 if there is none."""
    if records is None or len(records) < HEADER_BYTES:
        return -1, -1, -1
    producer_id, epoch, base_sequence = _HEADER.unpack_from(records)[9:12]
    return producer_id, epoch, base_sequence


def transactional_producer_of(records: memoryview | None) -> tuple[int, int] | None:
    """Return producer ID and epoch that the first batch claims, checked or not; None if it is not transactional."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    fields = _HEADER.unpack_from(records)
    return (fields[9], fields[10]) if fields[5] & _TRANSACTIONAL else None


def check_batch(records: memoryview, *, max_message_bytes: int) -> BatchHeader:
    """Return the header of the one batch that `records` of a Produce v3+ hold, if a broker would append it.

    The checks and codes are those of `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords` and
    `LogValidator.validateBatch`, in their order, with these differences: nothing is decompressed, so a wrong record
    count in a compressed batch is not found; bytes after the batch are rejected instead of cut off; an unknown codec is
    UNSUPPORTED_COMPRESSION_TYPE instead of an unknown server error; a producer that claims LogAppendTime is rejected,
    whatever the topic is set to.

    `max_message_bytes` is `max.message.bytes` of the topic. Raises RecordsError.
    """
    available = len(records)
    if available < HEADER_BYTES:
        raise _too_short(records, 0, available)
    fields = _HEADER.unpack_from(records)
    length = fields[1] + LENGTH_END
    if fields[3] != MAGIC:
        raise _wrong_magic(fields[3])
    if length != available:
        raise _not_one_batch(length, available)
    if fields[0]:
        raise RecordsError(INVALID_RECORD, f"base offset of a produced batch must be 0, but is {fields[0]}")
    if length > max_message_bytes:
        raise RecordsError(
            MESSAGE_TOO_LARGE, f"record batch of {length} bytes is above max.message.bytes={max_message_bytes}"
        )
    if crc32c(records[CRC_COVERS_FROM:]) != fields[4]:
        raise RecordsError(CORRUPT_MESSAGE, f"CRC of the record batch does not match its {length} bytes")
    header = BatchHeader(length, *fields[2:])
    attributes = header.attributes
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0 or count != header.last_offset_delta + 1:
        raise RecordsError(
            INVALID_RECORD, f"record count {count} does not agree with last offset delta {header.last_offset_delta}"
        )
    if attributes & (_CODEC_MASK | _LOG_APPEND_TIME | _CONTROL):
        _check_attributes(attributes)
    if not attributes & _CODEC_MASK and count * SMALLEST_RECORD_BYTES > length - HEADER_BYTES:
        raise RecordsError(
            INVALID_RECORD, f"{count} records cannot lie in {length - HEADER_BYTES} bytes without compression"
        )
    if header.producer_id != -1 or attributes & _TRANSACTIONAL:
        _check_producer(header)
    return header


def patch_offsets(
    run: bytearray | memoryview, base_offset: int, leader_epoch: int, log_append_time_ms: int | None = None
) -> list[BatchBounds]:
    """Give the contiguous batches of `run` their offsets from `base_offset` on, and one partition leader epoch.

    `log_append_time_ms`, if given, becomes the time of all their records (`message.timestamp.type=LogAppendTime`).

    `run` must be writable and is changed in place; the CRCs stay true. Raises RecordsError (CORRUPT_MESSAGE) if the
    bytes are not whole v2 batches; batches before that place have been patched by then.
    """
    bounds: list[BatchBounds] = []
    end = len(run)
    position = 0
    unpack, pack, new = _BOUNDS.unpack_from, _PATCH.pack_into, tuple.__new__
    while position < end:
        if end - position < HEADER_BYTES:
            raise RecordsError(CORRUPT_MESSAGE, f"{end - position} bytes at {position} are no record batch")
        length, magic, last_offset_delta = unpack(run, position)
        total = length + LENGTH_END
        if magic != MAGIC or last_offset_delta < 0 or not HEADER_BYTES <= total <= end - position:
            raise RecordsError(
                CORRUPT_MESSAGE,
                f"no record batch at {position} of {end} bytes: length {length}, magic {magic}, "
                f"last offset delta {last_offset_delta}",
            )
        pack(run, position, base_offset, length, leader_epoch)
        if log_append_time_ms is not None:
            _stamp(run, position, position + total, log_append_time_ms)
        last_offset = base_offset + last_offset_delta
        bounds.append(new(BatchBounds, (position, total, base_offset, last_offset)))
        position += total
        base_offset = last_offset + 1
    return bounds


def is_patched_otherwise(run: bytes | bytearray | memoryview, base_offset: int, log_append_time_ms: int | None) -> bool:
    """Return whether the first batch of `run` already has another offset, or under LogAppendTime another time.

    0 counts as no offset, as producers send it.
    """
    if len(run) < HEADER_BYTES:
        return False
    fields = _HEADER.unpack_from(run)
    stamped = fields[5] & _LOG_APPEND_TIME
    return fields[0] not in (0, base_offset) or bool(stamped and fields[8] != log_append_time_ms)


def check_offsets(run: bytes | bytearray | memoryview, base_offset: int, last_offset: int) -> list[BatchBounds]:
    """Return the batches of `run`, which have their offsets: ascending, none before `base_offset`, up to `last_offset`.

    Compaction may leave gaps between batches, and before the first one. CRCs are not computed. Raises RecordsError
    (CORRUPT_MESSAGE) if the bytes are not such batches.
    """
    bounds: list[BatchBounds] = []
    end = len(run)
    position, lowest = 0, base_offset
    while position < end:
        if end - position < HEADER_BYTES:
            raise RecordsError(CORRUPT_MESSAGE, f"{end - position} bytes at {position} are no record batch")
        first, length, magic, last_offset_delta = _PLACED.unpack_from(run, position)
        total = length + LENGTH_END
        if magic != MAGIC or last_offset_delta < 0 or not HEADER_BYTES <= total <= end - position:
            raise RecordsError(
                CORRUPT_MESSAGE,
                f"no record batch at {position} of {end} bytes: length {length}, magic {magic}, "
                f"last offset delta {last_offset_delta}",
            )
        if first < lowest:
            raise RecordsError(CORRUPT_MESSAGE, f"the batch at {position} has base offset {first}, below {lowest}")
        bounds.append(BatchBounds(position, total, first, first + last_offset_delta))
        position, lowest = position + total, first + last_offset_delta + 1
    if not bounds or bounds[-1].last_offset != last_offset:
        raise RecordsError(CORRUPT_MESSAGE, f"the batches end at offset {lowest - 1}, not at {last_offset}")
    return bounds


def empty_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """Return a batch without records that goes up to `end_offset`, or as near to it as one batch can (2**31 offsets).

    Brokers leave such batches after compaction has removed records (`DefaultRecordBatch.writeEmptyHeader`): a consumer
    continues after the last offset of the header.
    """
    last_offset_delta = min(end_offset - base_offset - 1, _MAX_LAST_OFFSET_DELTA)
    length = HEADER_BYTES - LENGTH_END
    # No attributes, times, producer or records.
    batch = bytearray(
        _HEADER.pack(base_offset, length, leader_epoch, MAGIC, 0, 0, last_offset_delta, -1, -1, -1, -1, -1, 0)
    )
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(batch[CRC_COVERS_FROM:]))
    return bytes(batch)


def control_batch(
    base_offset: int,
    leader_epoch: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    committed: bool,
    timestamp_ms: int,
    log_append_time: bool,
) -> bytes:
    """Return the control batch that ends a transaction (`MemoryRecords.withEndTransactionMarker`)."""
    attributes = _TRANSACTIONAL | _CONTROL | (_LOG_APPEND_TIME if log_append_time else 0)
    length = HEADER_BYTES + _MARKER.size - LENGTH_END
    head = (base_offset, length, leader_epoch, MAGIC, 0, attributes, 0)
    batch = bytearray(_HEADER.pack(*head, timestamp_ms, timestamp_ms, producer_id, producer_epoch, -1, 1))
    batch += _MARKER.pack(*_MARKER_LENGTHS, _KEY_LENGTH, 0, committed, _VALUE_LENGTH, 0, coordinator_epoch, 0)
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(batch[CRC_COVERS_FROM:]))
    return bytes(batch)


def _stamp(run: bytearray | memoryview, position: int, end: int, log_append_time_ms: int) -> None:
    """Set the time as `DefaultRecordBatch.setMaxTimestamp` does: for every record, without changing base time and
    deltas."""
    run[position + _CODEC_POSITION] |= _LOG_APPEND_TIME
    _TIMESTAMP.pack_into(run, position + _MAX_TIMESTAMP_POSITION, log_append_time_ms)
    with memoryview(run) as view:
        _CRC.pack_into(run, position + _CRC_POSITION, crc32c(view[position + CRC_COVERS_FROM : end]))


def _check_attributes(attributes: int) -> None:
    if attributes & _CODEC_MASK > CODEC_ZSTD:
        raise RecordsError(UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {attributes & _CODEC_MASK} is not known")
    if attributes & _CONTROL:
        raise RecordsError(INVALID_RECORD, "clients may not write control batches")
    if attributes & _LOG_APPEND_TIME:
        raise RecordsError(INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")


def _check_producer(header: BatchHeader) -> None:
    """Producer ID, epoch and sequence belong together, and a transaction needs all three."""
    if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise RecordsError(
            INVALID_RECORD,
            f"producer ID {header.producer_id}, epoch {header.producer_epoch} and base sequence "
            f"{header.base_sequence} do not go together",
        )


def _too_short(data: bytes | bytearray | memoryview, position: int, remaining: int) -> RecordsError:
    """Return Kafka's error code for bytes without a v2 header: a batch of an older format may be that short."""
    if remaining > 16:
        (length,) = struct.unpack_from(">i", data, position + 8)
        magic = struct.unpack_from(">b", data, position + 16)[0]
        if length < SMALLEST_LEGACY_BYTES:
            return _wrong_length(length + LENGTH_END, remaining)
        if magic != MAGIC:
            return _wrong_magic(magic)
    return RecordsError(INVALID_RECORD, f"{remaining} bytes hold no whole record batch")


def _wrong_magic(magic: int) -> RecordsError:
    if magic in (0, 1):
        return RecordsError(INVALID_RECORD, f"message format v{magic} is too old: record batches must have magic 2")
    return RecordsError(CORRUPT_MESSAGE, f"magic {magic} is not a record batch's")


def _wrong_length(length: int, available: int) -> RecordsError:
    return RecordsError(CORRUPT_MESSAGE, f"record batch says {length} bytes where {available} are")


def _not_one_batch(length: int, available: int) -> RecordsError:
    if length < HEADER_BYTES:
        return _wrong_length(length, available)
    if length > available:
        return RecordsError(INVALID_RECORD, f"record batch of {length} bytes was cut off after {available}")
    return RecordsError(
        INVALID_RECORD,
        f"exactly one record batch per partition is allowed: {available - length} bytes follow the first",
    )
