"""Some of the records of a batch, and batches made again of them. Sans-io.

A record's bytes are kept as they are except for its timestamp delta, where its batch gets another base timestamp: that
is where the delete horizon of tombstones stands (KIP-534, `DefaultRecordBatch.deleteHorizonMs`).
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import NamedTuple

from crc32c import crc32c

from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records.batches import CRC_COVERS_FROM, HEADER_BYTES, LENGTH_END, BatchHeader, RecordsError
from proxy.records.compression import Buffer, CodecError, compress, decompress
from proxy.records.varint import read_varint
from proxy.wire.primitives import unsigned_varint

DELETE_HORIZON = 0x40
"""The bit of a batch's attributes which says that its base timestamp is the delete horizon of its tombstones."""
MAX_DECOMPRESSED_BYTES = 268_435_456
"""Maximum decompressed size of one batch, because a few bytes can claim to hold any amount."""
NO_TIMESTAMP = -1

_CODEC_MASK = 0x07
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Kept(NamedTuple):
    """Some of the records of a batch."""

    data: bytes
    """Records as they lie in a batch, not compressed."""
    records: int
    newest_delta: int
    """Greatest of their timestamp deltas; 0 if there are no records."""


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """From when on the batch's tombstones may go, in milliseconds since 1970; None if it is not set."""
    return header.base_timestamp_ms if header.attributes & DELETE_HORIZON else None


def records_of(batch: Buffer, header: BatchHeader) -> bytes:
    """Return the decompressed records of a whole batch. Raises RecordsError."""
    try:
        packed = memoryview(batch)[HEADER_BYTES : header.length]
        return bytes(decompress(header.compression, packed, MAX_DECOMPRESSED_BYTES))
    except CodecError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error


def kept_of(data: bytes, count: int, deltas: Container[int]) -> Kept:
    """Return those of `count` records, which must fill `data`, that have these offset deltas, byte for byte.

    It takes about half a microsecond per record. Raises RecordsError.
    """
    parts: list[bytes] = []
    size, at, found, newest, kept_from = len(data), 0, 0, 0, -1
    try:
        for _ in range(count):
            # Most numbers take a byte or two: those are read here, where a call would take longer.
            start, value = at, data[at]
            if value < 0x80:
                end = at + 1 + ((value >> 1) ^ -(value & 1))
                at += 2
            elif data[at + 1] < 0x80:
                value = value & 0x7F | data[at + 1] << 7
                end = at + 2 + ((value >> 1) ^ -(value & 1))
                at += 3
            else:
                length, at = read_varint(data, at)
                end = at + length
                at += 1
            value = data[at]
            if value < 0x80:
                timestamp_delta = (value >> 1) ^ -(value & 1)
                at += 1
            else:
                timestamp_delta, at = read_varint(data, at)
            value = data[at]
            if value < 0x80:
                offset_delta = (value >> 1) ^ -(value & 1)
                at += 1
            else:
                offset_delta, at = read_varint(data, at)
            if not at <= end <= size:
                raise RecordsError(CORRUPT_MESSAGE, f"a record that ends at {end}, at {start} of {size}")
            if offset_delta in deltas:
                newest = timestamp_delta if not found else max(newest, timestamp_delta)
                found += 1
                if kept_from < 0:
                    kept_from = start
            elif kept_from >= 0:
                parts.append(data[kept_from:start])
                kept_from = -1
            at = end
    except IndexError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error
    if at != size:
        raise RecordsError(CORRUPT_MESSAGE, f"{size - at} bytes follow the last record of a batch")
    if kept_from >= 0:
        parts.append(data[kept_from:])
    return Kept(b"".join(parts), found, newest)


def moved(kept: Kept, by_ms: int) -> tuple[Kept, int]:
    """Return the records with timestamp deltas for a base later by `by_ms`, and the number of tombstones among them.

    Raises RecordsError.
    """
    data, at, tombstones = kept.data, 0, 0
    parts: list[bytes] = []
    try:
        for _ in range(kept.records):
            length, start = read_varint(data, at)
            end = start + length
            delta, behind_time = read_varint(data, start + 1)
            body = data[start : start + 1] + _varint(delta - by_ms) + data[behind_time:end]
            parts += [_varint(len(body)), body]
            _, key_at = read_varint(data, behind_time)
            key_length, at = read_varint(data, key_at)
            tombstones += read_varint(data, at + max(key_length, 0))[0] < 0
            at = end
    except IndexError as error:
        raise RecordsError(CORRUPT_MESSAGE, f"the records of a batch can't be read: {error}") from error
    return Kept(b"".join(parts), kept.records, kept.newest_delta - by_ms), tombstones


def batch_of(batch: Buffer, header: BatchHeader, kept: Kept, *, horizon_ms: int | None) -> bytes:
    """Return the batch with those of its records alone, as `MemoryRecords.buildRetainedRecordsInto` makes it.

    Base and last offset, producer, codec and type of time stay. `horizon_ms`: its delete horizon from now on, from
    which the records' timestamp deltas count; None if it has none.
    """
    base_ms = header.base_timestamp_ms if horizon_ms is None else horizon_ms
    made = header._replace(
        attributes=header.attributes if horizon_ms is None else header.attributes | DELETE_HORIZON,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=header.max_timestamp_ms if header.timestamp_type else base_ms + kept.newest_delta,
        record_count=kept.records,
    )
    return _sealed(batch, made, compress(header.compression, kept.data))


def emptied(batch: Buffer, header: BatchHeader) -> bytes:
    """Return the batch without records, as `DefaultRecordBatch.writeEmptyHeader` leaves it: offsets and sequences
    stay."""
    attributes = header.attributes & ~(_CODEC_MASK | DELETE_HORIZON)
    bare = header._replace(attributes=attributes, base_timestamp_ms=NO_TIMESTAMP, record_count=0)
    return _sealed(batch, bare, b"")


def _sealed(batch: Buffer, header: BatchHeader, packed: Buffer) -> bytes:
    """Header and records, with length and CRC computed; the base offset is that of `batch`."""
    base_offset = int.from_bytes(batch[:8], "big")
    length = HEADER_BYTES - LENGTH_END + len(packed)
    made = bytearray(_HEADER.pack(base_offset, length, *header[1:]))
    made += packed
    with memoryview(made) as view:
        crc = crc32c(view[CRC_COVERS_FROM:])
    struct.pack_into(">I", made, 17, crc)
    return bytes(made)


def _varint(number: int) -> bytes:
    """`number` as records have it: zigzag, of up to 64 bits."""
    return unsigned_varint((number << 1) ^ (number >> 63))
