"""The records sent to each partition, and errors in the records read from it.

Every record has a header with its sender and number, and nobody sends the same record twice. So a lost, doubled,
reordered or changed record shows, whichever reader is used. Of a compacted topic, the last record of each key must
exist.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

ID_HEADER = "id"
_ID = struct.Struct(">8sIQ")
_OVERHEAD_BYTES = 200
"""Maximum bytes that a record takes in addition if it is alone in its batch: frames of record and batch, and the
codec."""
MAX_PROBLEMS = 20
"""Maximum number of problems to report per partition and reader."""
Headers = Sequence[tuple[str, bytes | None]]


class Keeps(Enum):
    """The records that a topic must keep."""

    ALL = "all"
    THE_NEWEST = "the newest"
    THE_LAST_OF_EACH_KEY = "the last of each key"


class RecordId(NamedTuple):
    """Identity of a record; no two records of a run share one."""

    producer: int
    sequence: int


class Read(NamedTuple):
    """A record as a reader got it."""

    offset: int
    record: RecordId | None
    """None if it is not a record of this run."""
    digest: bytes
    """Digest of everything in the record."""


def id_header(run: bytes, record: RecordId) -> tuple[str, bytes]:
    """Return the header that every record carries."""
    return ID_HEADER, _ID.pack(run, *record)


def as_read(
    run: bytes, offset: int, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int
) -> Read:
    """Build a record from the fields that every reader reports."""
    found = dict(headers).get(ID_HEADER)
    record = None
    if found is not None and len(found) == _ID.size:
        of_run, producer, sequence = _ID.unpack(found)
        record = RecordId(producer, sequence) if of_run == run else None
    return Read(offset, record, digest(key, value, headers, timestamp_ms))


def digest(key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> bytes:
    """Return a digest of everything in a record except its position."""
    parts = [key, value, b"%d" % timestamp_ms]
    for name, content in headers:
        parts += [name.encode(), content]
    hashed = hashlib.blake2b(digest_size=12)
    for part in parts:
        hashed.update(b"-" if part is None else b"%d:" % len(part) + part)
    return hashed.digest()


def most_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the maximum bytes that a record takes in the log, whatever the codec."""
    parts = [key, value, *(part for name, content in headers for part in (name.encode(), content))]
    return _OVERHEAD_BYTES + sum(len(part or b"") for part in parts)


@dataclass
class Partition:
    """One partition's books; the threads of its producers write them."""

    keeps: Keeps
    retention_bytes: int = 0
    """Bytes of the newest records that a topic with retention must keep at least."""
    sizes: dict[RecordId, int] = field(default_factory=dict)
    """Maximum bytes of each record in the log."""
    digests: dict[RecordId, bytes] = field(default_factory=dict)
    """Digests of all sent records."""
    keys: dict[RecordId, bytes | None] = field(default_factory=dict)
    offsets: dict[RecordId, int] = field(default_factory=dict)
    """Offsets of all acknowledged records; -1 if the producer did not get the offset."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, record: RecordId, key: bytes | None, checksum: bytes, size: int) -> None:
        """Note a record that is being sent; it takes at most `size` bytes in the log."""
        with self.lock:
            self.sizes[record] = size
            self.digests[record] = checksum
            self.keys[record] = key

    def acknowledged(self, record: RecordId, offset: int) -> None:
        """Note that the log has the record."""
        with self.lock:
            self.offsets[record] = offset

    def problems(self, read: Sequence[Read], log_start: int = 0) -> list[str]:
        """Return errors in the records that a reader got, in their order, after all records are acknowledged.

        `log_start` is the log start at the time when the reader reached the end, for a topic with retention.
        """
        found = [*self._each(read), *self._order(read), *self._missing(read, log_start)]
        more = len(found) - MAX_PROBLEMS
        return [*found[:MAX_PROBLEMS], f"and {more} more"] if more > 0 else found

    def _each(self, read: Iterable[Read]) -> Iterable[str]:
        seen: dict[RecordId, int] = {}
        for offset, record, checksum in read:
            if record is None or record not in self.digests:
                yield f"offset {offset} has a record that nobody sent"
                continue
            if record in seen:
                yield f"offset {offset} has {record} again, which was at {seen[record]}"
            seen[record] = offset
            if checksum != self.digests[record]:
                yield f"offset {offset} has {record} with other bytes than were sent"
            if self.offsets.get(record, -1) not in (-1, offset):
                yield f"offset {offset} has {record}, which was acknowledged at {self.offsets[record]}"

    def _order(self, read: Sequence[Read]) -> Iterable[str]:
        sequences: dict[int, int] = {}
        for before, one in pairwise(read):
            if one.offset <= before.offset:
                yield f"offset {one.offset} came after {before.offset}"
            elif one.offset != before.offset + 1 and self.keeps != Keeps.THE_LAST_OF_EACH_KEY:
                yield f"offset {one.offset} came after {before.offset}: what is between is missing"
        for one in read:
            if one.record is None:
                continue
            known = sequences.get(one.record.producer, -1)
            if one.record.sequence <= known:
                yield f"offset {one.offset} has {one.record} after the producer's {known}"
            sequences[one.record.producer] = one.record.sequence

    def _missing(self, read: Sequence[Read], log_start: int) -> Iterable[str]:
        there = {one.record for one in read}
        if self.keeps == Keeps.THE_LAST_OF_EACH_KEY:
            last: dict[bytes | None, tuple[int, RecordId]] = {}
            for record, offset in self.offsets.items():
                last[self.keys[record]] = max(last.get(self.keys[record], (offset, record)), (offset, record))
            wanted = [record for _, record in last.values()]
        elif self.keeps == Keeps.THE_NEWEST:
            start = read[0].offset if read else max(self.offsets.values(), default=-1) + 1
            wanted = [record for record, offset in self.offsets.items() if offset >= start]
            if start > log_start:
                yield f"the first offset is {start}, and the log begins at {log_start}"
            left = sum(self.sizes[record] for record in wanted)
            if start > 0 and left < self.retention_bytes:
                yield f"the first offset is {start}: {left} bytes are left, and {self.retention_bytes} are to be kept"
        else:
            if read and read[0].offset != 0:
                yield f"the first offset is {read[0].offset}"
            wanted = list(self.offsets)
        for record in sorted(set(wanted) - there):
            yield f"{record}, acknowledged at offset {self.offsets[record]}, is missing"
