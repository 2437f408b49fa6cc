"""The content of a load's record: producer, number and time; enough to check everything about the record.

A value is a header (run, producer, sequence, send time, flags), followed by incompressible bytes, different in each
record. The producer and every reader report the checksum over key and value next to the record.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from typing import NamedTuple

HEADER = struct.Struct(">8sIQQ?")
"""Run, producer's number, sequence, send time in nanoseconds of the monotonic clock, whether latency counts."""
MIN_RECORD_BYTES = HEADER.size
RUN_BYTES = 8
_FILLING_BYTES = 1 << 16


class Sent(NamedTuple):
    """The fields of the header."""

    producer: int
    sequence: int
    sent_ns: int
    measured: bool
    """Whether its latency counts; not while the brokers warm up."""


class Writer:
    """Makes the records of one producer."""

    def __init__(self, run: bytes, producer: int, record_bytes: int) -> None:
        """`record_bytes` is the length of the values, at least MIN_RECORD_BYTES."""
        self._run, self._producer = run, producer
        self._filling_bytes = record_bytes - HEADER.size
        self._filling = os.urandom(_FILLING_BYTES + self._filling_bytes)

    def record(self, sequence: int, measured: bool = True) -> tuple[bytes, bytes]:
        """Key and value of a record that is sent now."""
        start = sequence * 61 % _FILLING_BYTES
        header = HEADER.pack(self._run, self._producer, sequence, now_ns(), measured)
        return b"%d-%d" % (self._producer, sequence), header + self._filling[start : start + self._filling_bytes]


def read(run: bytes, value: bytes | None) -> Sent | None:
    """Return the header of a value; None if it is not of this run."""
    if value is None or len(value) < HEADER.size:
        return None
    found, *fields = HEADER.unpack_from(value)
    return Sent(*fields) if found == run else None


def checksum(key: bytes | None, value: bytes | None) -> int:
    """CRC32 over both."""
    return zlib.crc32(value or b"", zlib.crc32(key or b""))


def now_ns() -> int:
    """Return the time for send times: one clock for all processes of a machine, which is never set back."""
    return time.monotonic_ns()
