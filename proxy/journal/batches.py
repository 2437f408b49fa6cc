"""Records of the journal as a Fetch returns them. Sans-io."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from proxy.coordinator.interface_journal import JournalRecord
from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records.batches import CRC_COVERS_FROM, HEADER_BYTES, LENGTH_END, RecordsError, read_header
from proxy.records.plain import plain_values
from proxy.wire.primitives import INT32, INT64

_LENGTH_POSITION = INT64.size


def read_batches(data: bytes, from_position: int) -> Iterator[JournalRecord]:
    """Yield the records from a position on. A batch at the end that is cut off is left out.

    The positions have no gaps, and every batch has the time of its append. Raises RecordsError if that is not so.
    """
    view, make = memoryview(data), tuple.__new__
    at, expected = 0, from_position
    while len(data) - at >= HEADER_BYTES:
        length = INT32.unpack_from(data, at + _LENGTH_POSITION)[0] + LENGTH_END
        if length > len(data) - at:
            break
        header = read_header(view, at)
        batch = view[at : at + length]
        (base_offset,) = INT64.unpack_from(data, at)
        if crc32c(batch[CRC_COVERS_FROM:]) != header.crc:
            raise RecordsError(CORRUPT_MESSAGE, f"the CRC of the batch at position {base_offset} is wrong")
        if base_offset > expected or (at and base_offset < expected):
            raise RecordsError(CORRUPT_MESSAGE, f"a batch is at position {base_offset} instead of {expected}")
        if not header.timestamp_type:
            raise RecordsError(CORRUPT_MESSAGE, f"the batch at position {base_offset} has no time of its append")
        time_ms = header.max_timestamp_ms
        for position, value in enumerate(plain_values(batch, header), base_offset):
            if position >= from_position:
                yield make(JournalRecord, (position, time_ms, value))
        expected = base_offset + header.record_count
        at += length
