"""Plain record batches: values without keys, headers or compression, as the journal writes and reads them. Sans-io.

See `batches.py` for the header of a batch, and KIP-98 for a record: a varint with its length, a byte of attributes,
varints for the deltas of timestamp and offset, key, value and headers, each with a varint length that is -1 for null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from proxy.protocol.errors import CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE
from proxy.records.batches import HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, RecordsError
from proxy.records.compression import Buffer
from proxy.records.varint import read_varint, varint

MAX_RECORD_OVERHEAD_BYTES = 18
"""Maximum size of a record with a null key and without headers, in addition to its value."""
_BEFORE_CRC = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
"""Fields of a header that the CRC covers: attributes, last offset delta, both timestamps, producer, record count."""
_NO_TIME_DELTA = b"\0\0"
"""Attributes and timestamp delta."""
_NO_KEY = varint(-1)
_NO_HEADERS = varint(0)


def plain_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """Return a batch with a record for each value, of which there is at least one, as a producer sends it."""
    records = bytearray()
    for place, value in enumerate(values):
        head = _NO_TIME_DELTA + varint(place) + _NO_KEY + varint(len(value))
        records += varint(len(head) + len(value) + 1)
        records += head
        records += value
        records += _NO_HEADERS
    count = len(values)
    covered = _COVERED.pack(0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    length = HEADER_BYTES - LENGTH_END + len(records)
    return _BEFORE_CRC.pack(0, length, -1, MAGIC, crc32c(covered)) + covered


def plain_values(batch: Buffer, header: BatchHeader) -> Iterator[bytes]:
    """Yield the values of the records of a batch without compression, in their order; a null value is empty.

    Keys and headers are skipped. Raises RecordsError if the records do not match the header, or have gaps between their
    offsets.
    """
    if header.compression:
        raise RecordsError(UNSUPPORTED_COMPRESSION_TYPE, f"the records are compressed with codec {header.compression}")
    if header.last_offset_delta != header.record_count - 1:
        raise _corrupt(f"{header.record_count} records have a last offset delta of {header.last_offset_delta}")
    data, at = bytes(batch[HEADER_BYTES : header.length]), 0
    size = len(data)
    for place in range(header.record_count):
        try:
            # Most lengths take two bytes: those are read here, where a call would take longer.
            first, second = data[at], data[at + 1]
            if first >= 0x80 > second:
                length, start = (first & 0x7F | second << 7) >> 1, at + 2
            else:
                length, start = read_varint(data, at)
            at = start + length
            if length < 0 or at > size:
                raise _corrupt(f"record {place} of {header.record_count} says {length} bytes of {size - start}")
            value_at, value_end = _value(data, start, place)
        except IndexError:
            raise _corrupt(f"the records end after {place} of {header.record_count}") from None
        if value_end >= at:
            raise _corrupt(f"record {place} of {header.record_count} does not fit its {length} bytes")
        yield data[value_at:value_end]
    if at != size:
        raise _corrupt(f"{size - at} bytes follow the last record")


def _value(data: bytes, start: int, place: int) -> tuple[int, int]:
    """Return start and end of the value of the record whose attributes are at `start`.

    Raises RecordsError if its offset is not that of its place, and IndexError at the end of the data.
    """
    _, at = read_varint(data, start + 1)
    offset_delta, at = read_varint(data, at)
    if offset_delta != place:
        raise _corrupt(f"record {place} has the offset delta {offset_delta}")
    key_length, at = read_varint(data, at)
    value_length, at = read_varint(data, at + max(key_length, 0))
    return at, at + max(value_length, 0)


def _corrupt(text: str) -> RecordsError:
    return RecordsError(CORRUPT_MESSAGE, text)
