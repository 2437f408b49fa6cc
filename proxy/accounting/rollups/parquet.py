"""Apache Parquet, written plainly: required columns of text and 64-bit integers, one row group, one page a column.

A few kilobytes every few minutes are all that is written, and pyarrow would take more memory for that than the proxy
itself has (decision 0040). The format: https://github.com/apache/parquet-format (README.md and parquet.thrift), whose
structures are in Thrift's compact protocol (thrift-compact-protocol.md). Pages are gzip'ed and have a CRC.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from enum import Enum

MAGIC = b"PAR1"
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
"""Types of Thrift's compact protocol."""
_PLAIN, _RLE = 0, 3
_REQUIRED = 0
_GZIP = 2
_DATA_PAGE = 0
_LEVEL = 6
"""Level of compression: more takes three times the time for next to nothing."""


class Kind(Enum):
    """Kind of a column: its physical type and its converted type, -1 for none."""

    TEXT = (6, 0)
    INTEGER = (2, -1)
    TIMESTAMP_MS = (2, 9)
    """Milliseconds since 1970, UTC."""


def encode(
    columns: Mapping[str, tuple[Kind, Sequence[str] | Sequence[int]]], metadata: Mapping[str, str], created_by: str
) -> bytes:
    """A whole file. Columns are of one length; nothing in them is null."""
    row_count = len(next(iter(columns.values()))[1])
    file = bytearray(MAGIC)
    chunks: list[bytes] = []
    uncompressed_bytes = 0
    for name, (kind, values) in columns.items():
        offset = len(file)
        page = _page(kind, values)
        packed = gzip.compress(page, _LEVEL, mtime=0)
        header = _page_header(len(page), packed, row_count)
        file += header + packed
        uncompressed_bytes += len(header) + len(page)
        chunks.append(_chunk(name, kind, row_count, offset, len(header) + len(page), len(header) + len(packed)))
    group = _structure((1, _list(_STRUCT, chunks)), (2, _i64(uncompressed_bytes)), (3, _i64(row_count)))
    schema = [_structure((4, _text("rollup")), (5, _i32(len(columns))))]
    schema += [_element(name, kind) for name, (kind, _) in columns.items()]
    pairs = [_structure((1, _text(key)), (2, _text(value))) for key, value in metadata.items()]
    footer = _structure(
        (1, _i32(1)),
        (2, _list(_STRUCT, schema)),
        (3, _i64(row_count)),
        (4, _list(_STRUCT, [group])),
        (5, _list(_STRUCT, pairs)),
        (6, _text(created_by)),
    )
    return bytes(file + footer + struct.pack("<I", len(footer)) + MAGIC)


def _page(kind: Kind, values: Sequence[str] | Sequence[int]) -> bytes:
    """Values in the encoding PLAIN. Required columns of the top level have no levels before them."""
    if kind is not Kind.TEXT:
        return struct.pack(f"<{len(values)}q", *values)
    encoded = {value: _counted(str(value).encode(errors="replace")) for value in set(values)}
    return b"".join([encoded[value] for value in values])


def _counted(text: bytes) -> bytes:
    return struct.pack("<I", len(text)) + text


def _page_header(size: int, packed: bytes, row_count: int) -> bytes:
    levels = (3, _i32(_RLE)), (4, _i32(_RLE))
    data_page = _structure((1, _i32(row_count)), (2, _i32(_PLAIN)), *levels)
    crc = struct.unpack("<i", struct.pack("<I", zlib.crc32(packed)))[0]
    return _structure(
        (1, _i32(_DATA_PAGE)), (2, _i32(size)), (3, _i32(len(packed))), (4, _i32(crc)), (5, (_STRUCT, data_page))
    )


def _element(name: str, kind: Kind) -> bytes:
    physical, converted = kind.value
    fields = [(1, _i32(physical)), (3, _i32(_REQUIRED)), (4, _text(name))]
    return _structure(*fields, *([(6, _i32(converted))] if converted >= 0 else []))


def _chunk(name: str, kind: Kind, row_count: int, offset: int, size: int, packed_size: int) -> bytes:
    column = _structure(
        (1, _i32(kind.value[0])),
        (2, _list(_I32, [_zigzag(_PLAIN)])),
        (3, _list(_BINARY, [_text(name)[1]])),
        (4, _i32(_GZIP)),
        (5, _i64(row_count)),
        (6, _i64(size)),
        (7, _i64(packed_size)),
        (9, _i64(offset)),
    )
    return _structure((2, _i64(offset)), (3, (_STRUCT, column)))


_Value = tuple[int, bytes]
"""Type and encoding."""


def _structure(*fields: tuple[int, _Value]) -> bytes:
    """Encode fields by ascending ID; each has its distance from the one before, at most 15."""
    encoded, before = bytearray(), 0
    for number, (kind, value) in fields:
        encoded.append((number - before) << 4 | kind)
        encoded += value
        before = number
    return bytes(encoded) + b"\0"


def _list(kind: int, items: Sequence[bytes]) -> _Value:
    few = len(items) < 15
    head = bytes([len(items) << 4 | kind]) if few else bytes([0xF0 | kind]) + _varint(len(items))
    return _LIST, head + b"".join(items)


def _i32(value: int) -> _Value:
    return _I32, _zigzag(value)


def _i64(value: int) -> _Value:
    return _I64, _zigzag(value)


def _text(value: str) -> _Value:
    encoded = value.encode(errors="replace")
    return _BINARY, _varint(len(encoded)) + encoded


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
