"""Plain record batches: values without keys, headers or compression, as the journal writes and reads them. Sans-io.

See `batches.py` for the header of a batch, and KIP-98 for a record: a varint with its length, a byte of attributes,
varints for the deltas of timestamp and offset, key, value and headers, each with a varint length that is -1 for null.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

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


def plain_values(batch: Buffer, header: BatchHeader) -> list[bytes]:
    """Return the values of the records of a batch without compression, in their order; a null value is empty.

    Keys and headers are skipped. Raises RecordsError if the records do not match the header, or have gaps between their
    offsets.
    """
    if header.compression:
        raise RecordsError(UNSUPPORTED_COMPRESSION_TYPE, f"the records are compressed with codec {header.compression}")
    data = bytes(batch[HEADER_BYTES : header.length])
    values, at = [], 0
    try:
        for place in range(header.record_count):
            length, at = read_varint(data, at)
            end = at + length
            _, at = read_varint(data, at + 1)
            offset_delta, at = read_varint(data, at)
            key_length, at = read_varint(data, at)
            value_length, at = read_varint(data, at + max(key_length, 0))
            value = data[at : at + max(value_length, 0)]
            if length < 0 or at + len(value) >= end or end > len(data) or len(value) != max(value_length, 0):
                raise _corrupt(f"record {place} of {header.record_count} does not fit its length")
            if offset_delta != place:
                raise _corrupt(f"record {place} has the offset delta {offset_delta}")
            values.append(value)
            at = end
    except IndexError:
        raise _corrupt(f"the records end after {len(values)} of {header.record_count}") from None
    if at != len(data):
        raise _corrupt(f"{len(data) - at} bytes follow the last record")
    if header.last_offset_delta != header.record_count - 1:
        raise _corrupt(f"{header.record_count} records have a last offset delta of {header.last_offset_delta}")
    return values


def _corrupt(text: str) -> RecordsError:
    return RecordsError(CORRUPT_MESSAGE, text)
