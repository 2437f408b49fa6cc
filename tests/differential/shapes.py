"""Record batches to produce, described by their relevant properties, so that they can be printed and rebuilt."""

from __future__ import annotations

import functools
import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from crc32c import crc32c

ENCODE: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    # The bytes contain the time of compression, but must be the same for both sides.
    1: functools.partial(gzip.compress, mtime=0),
    2: snappy_encode,
    3: lz4_encode,
    4: zstd_encode,
}
MOST_SEQUENCES = 2**31
ZSTD = 4
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Given(NamedTuple):
    """One record."""

    size: int
    """Bytes of its value; -1 for none."""
    time_ms: int | None
    """Milliseconds from the beginning of the case; None for no timestamp."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One batch. `damage` is one of DAMAGES, or empty."""

    records: tuple[Given, ...]
    codec: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    damage: str = ""

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + len(self.records)) % MOST_SEQUENCES

    def build(self, began_ms: int) -> bytes:
        """Return the bytes; `began_ms` is the beginning of the case."""
        times = [-1 if one.time_ms is None else began_ms + one.time_ms for one in self.records]
        payload = b"".join(
            _record(place, one.size, time_ms - times[0])
            for place, (one, time_ms) in enumerate(zip(self.records, times, strict=True))
        )
        count = len(self.records)
        fields = {
            "base_offset": 0,
            "leader_epoch": -1,
            "magic": 2,
            "attributes": self.codec,
            "last_offset_delta": count - 1,
            "base_timestamp": times[0],
            "max_timestamp": max(times),
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": self.base_sequence,
            "count": count,
        }
        fields |= DAMAGED_FIELDS.get(self.damage, {})
        batch = _batch(fields, ENCODE[self.codec](payload))
        return DAMAGED_BYTES.get(self.damage, bytes)(batch)


def _batch(fields: dict[str, int], payload: bytes) -> bytes:
    def header(crc: int) -> bytes:
        return _HEADER.pack(
            fields["base_offset"],
            _HEADER.size - 12 + len(payload),
            fields["leader_epoch"],
            fields["magic"],
            crc,
            *(fields[name] for name in list(fields)[3:]),
        )

    return header(crc32c(header(0)[21:] + payload)) + payload


def _record(place: int, size: int, later_ms: int) -> bytes:
    key = b"" if place % 3 == 0 else struct.pack(">H", place)
    value = bytes((place + number) % 251 for number in range(size)) if size >= 0 else b""
    headers = [(b"header", b"of it")] if place % 4 == 3 else []
    body = b"\0" + _varint(later_ms) + _varint(place)
    body += _varint(len(key) if key else -1) + key + _varint(len(value) if size >= 0 else -1) + value
    body += _varint(len(headers))
    for name, text in headers:
        body += _varint(len(name)) + name + _varint(len(text)) + text
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag, encoded = (number << 1) ^ (number >> 63), b""
    while zigzag > 127:
        encoded += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    return encoded + bytes([zigzag])


DAMAGED_FIELDS: dict[str, dict[str, int]] = {
    "count": {"count": 1_000},
    "control": {"attributes": 0x20},
    "base offset": {"base_offset": 3},
    "last offset delta": {"last_offset_delta": -1},
    "codec 7": {"attributes": 7},
    "epoch without producer": {"producer_epoch": 3},
    "producer without sequence": {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1},
    "magic 1": {"magic": 1},
    "magic 5": {"magic": 5},
}
"""Wrong values in the header, under a CRC that matches."""
DAMAGED_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "crc": lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]),
    "cut": lambda batch: batch[:-1],
    "cut header": lambda batch: batch[:40],
    "two batches": lambda batch: batch + batch,
    "length": lambda batch: batch[:8] + struct.pack(">i", 5) + batch[12:],
    "negative length": lambda batch: batch[:8] + struct.pack(">i", -1) + batch[12:],
    "nothing": lambda _: b"",
}
DAMAGES = (*DAMAGED_FIELDS, *DAMAGED_BYTES)
FAIL_ALL = {"codec 7", "length", "negative length", "magic 5"}
"""Damages for which a broker rejects the whole request."""
