"""The records of one batch v2, decompressed: for people who look into a segment, not for the way of the data. Sans-io.

A record is a zigzag varint with its length, a byte of attributes, varints for the deltas of timestamp and offset, key,
value and headers, each with a varint length that is -1 for null (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records import compression
from proxy.records.batches import HEADER_BYTES, BatchHeader, RecordsError
from proxy.records.varint import read_varint

MAX_UNCOMPRESSED_BYTES = 268_435_456
"""Maximum decompressed size of one batch, because a few bytes can claim to hold any amount."""

_ABORT, _COMMIT = 0, 1
_CONTROL_KEY = Struct(">hh")
"""Version and type of a control record."""
_MARKER_VALUE = Struct(">hi")
"""Version, and epoch of the transaction coordinator."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record."""

    offset_delta: int
    """From the batch's base offset."""
    timestamp_ms: int
    """Time of the record; the batch's maximum if the batch is of LogAppendTime."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class EndMarker(NamedTuple):
    """The end of a transaction (`EndTransactionMarker`)."""

    committed: bool
    coordinator_epoch: int


def end_marker(record: Record) -> EndMarker | None:
    """Return what a record of a control batch says; None if it is not the marker of a transaction."""
    if len(record.key or b"") < _CONTROL_KEY.size or len(record.value or b"") < _MARKER_VALUE.size:
        return None
    _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    return EndMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None


def read_records(
    batch: memoryview, header: BatchHeader, *, header_key_errors: str = "backslashreplace"
) -> Iterator[Record]:
    """Yield the records of a whole batch in their order. Raises RecordsError if the bytes do not match the header.

    `header_key_errors` is the treatment of header keys that are not UTF-8, as in `bytes.decode`.
    """
    try:
        data = memoryview(
            compression.decompress(header.compression, batch[HEADER_BYTES : header.length], MAX_UNCOMPRESSED_BYTES)
        )
    except compression.CodecError as error:
        raise _corrupt(str(error)) from error
    at = 0
    for number in range(header.record_count):
        length, at = _varint(data, at)
        end = at + length
        if length < 0 or end > len(data):
            raise _corrupt(f"record {number} says {length} bytes where {len(data) - at} are")
        yield _record(data[:end], at, header, header_key_errors)
        at = end
    if at < len(data):
        raise _corrupt(f"{len(data) - at} bytes follow the last of {header.record_count} records")


def _record(data: memoryview, at: int, header: BatchHeader, header_key_errors: str) -> Record:
    """Return the record that begins after its length and ends with `data`."""
    at += 1  # attributes, all unused
    timestamp_delta, at = _varint(data, at)
    offset_delta, at = _varint(data, at)
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    count, at = _varint(data, at)
    if count < 0:
        raise _corrupt(f"a record says that it has {count} headers")
    headers = []
    for _ in range(count):
        name, at = _bytes(data, at)
        if name is None:
            raise _corrupt("a header has no key")
        content, at = _bytes(data, at)
        headers.append((name.decode(errors=header_key_errors), content))
    if at != len(data):
        raise _corrupt(f"{len(data) - at} bytes of a record hold nothing")
    timestamp_ms = header.max_timestamp_ms if header.timestamp_type else header.base_timestamp_ms + timestamp_delta
    return Record(offset_delta, timestamp_ms, key, value, tuple(headers))


def _bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise _corrupt(f"{length} bytes of a record where {len(data) - at} are left of it")
    return bytes(data[at : at + length]), at + length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a signed varint and the position after it."""
    try:
        return read_varint(data, at)
    except IndexError:
        raise _corrupt("a record is cut off, or a length in it has no end") from None


def _corrupt(text: str) -> RecordsError:
    return RecordsError(CORRUPT_MESSAGE, text)
