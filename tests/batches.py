"""Record batches by an independent writer (aiokafka), for tests of everything that reads or carries them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ENCODE = {0: bytes, GZIP: gzip_encode, SNAPPY: snappy_encode, LZ4: lz4_encode, ZSTD: zstd_encode}
HEADER_BYTES = 61


def make_batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    codec: int = 0,
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytearray:
    """Build one v2 batch as a producer sends it: a record for each value, a millisecond apart, base offset 0."""
    builder = DefaultRecordBatchBuilder(
        2, codec, int(transactional), producer_id, producer_epoch, base_sequence, 64 * 1024 * 1024
    )
    for index, value in enumerate(values):
        assert builder.append(index, timestamp_ms + index, None, value, []) is not None
    return bytearray(builder.build())


def make_timed_batch(
    times_ms: Sequence[int],
    *,
    codec: int = 0,
    claimed_ms: int | None = None,
    payload: bytes | None = None,
    count: int | None = None,
) -> bytearray:
    """Build one v2 batch with a record for each time, -1 for none, which the other writer cannot do.

    `claimed_ms` is the newest time in the header. `payload` replaces the (compressed) records, and the header claims
    `count` of them.
    """
    records = b""
    for place, time_ms in enumerate(times_ms):
        body = b"\0" + _varint(time_ms - times_ms[0]) + _varint(place) + _varint(-1) + _varint(1) + b"v" + _varint(0)
        records += _varint(len(body)) + body
    packed = ENCODE[codec](records) if payload is None else payload
    newest_ms = max(times_ms) if claimed_ms is None else claimed_ms
    count = count or len(times_ms)
    covered = struct.pack(">hiqqqhii", codec, count - 1, times_ms[0], newest_ms, -1, -1, -1, count) + packed
    length = HEADER_BYTES - 12 + len(packed)
    return bytearray(struct.pack(">qiibI", 0, length, -1, 2, crc32c(covered)) + covered)


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])
