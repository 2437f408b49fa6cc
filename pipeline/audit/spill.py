"""Data that an audit has to bring together, kept on the driver's local disk in buckets by segment.

A segment's rows come from all partitions, its use from all shards, its size from the listing. They are spilled by the
first bits of its UUID, which are random, so they meet in one of `BUCKETS` buckets. The driver holds a 64th of them at a
time: some 400 bytes for each row, segment and shard of that bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from pipeline.audit.transactions import AbortMarker, ExpectedAborts
from proxy.coordinator.interface import Row, SegmentUse

BUCKETS = 64
_ROW = Struct(">I?qq16sIIqq??")
_USE = Struct(">H16sqI")
_OBJECT = Struct(">16sQq")
_ABORT = Struct(">Iqqq")


class PlacedRow(NamedTuple):
    """A row, and whose it is."""

    log: int
    """Number of its log."""
    lives: bool
    """Whether that lived when it was looked at."""
    row: Row
    aborts: ExpectedAborts | None = None
    """For a merged row, its markers of aborted transactions; None if they are not checked."""


class ShardUse(NamedTuple):
    """One shard's record of the use of a segment."""

    shard: int
    segment: bytes
    use: SegmentUse


class ListedObject(NamedTuple):
    """A segment's object, as it was listed."""

    segment: bytes
    size_bytes: int
    modified_ms: int


class Spill:
    """The buckets; a context, at whose end they are removed."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="diskless-audit-")
        self._files: dict[tuple[str, int], BinaryIO] = {}

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        self._directory.cleanup()

    def add_row(self, placed: PlacedRow) -> None:
        """One row of the index."""
        self._write("rows", placed.row.segment, _ROW.pack(placed.log, placed.lives, *placed.row))
        for offset, producer_id in placed.aborts.markers if placed.aborts is not None else ():
            packed = _ABORT.pack(placed.log, placed.row.last_offset, offset, producer_id)
            self._write("aborts", placed.row.segment, packed)

    def add_use(self, use: ShardUse) -> None:
        """One entry of a shard's table of use."""
        self._write("use", use.segment, _USE.pack(use.shard, use.segment, *use.use))

    def add_object(self, listed: ListedObject) -> None:
        """One object."""
        self._write("objects", listed.segment, _OBJECT.pack(*listed))

    def rows(self, bucket: int) -> list[PlacedRow]:
        """Return the rows of one bucket, in the order in which they came."""
        return [PlacedRow(log, lives, Row._make(row)) for log, lives, *row in self._read("rows", bucket, _ROW)]

    def aborts(self, bucket: int) -> dict[tuple[int, int], list[AbortMarker]]:
        """Return the markers of aborted transactions in rows of one bucket, by log and last offset of the row."""
        found: dict[tuple[int, int], list[AbortMarker]] = {}
        for log, last_offset, *marker in self._read("aborts", bucket, _ABORT):
            found.setdefault((log, last_offset), []).append((marker[0], marker[1]))
        return found

    def use(self, bucket: int) -> list[ShardUse]:
        """Return the use in one bucket."""
        return [
            ShardUse(shard, segment, SegmentUse(size_bytes, rows))
            for shard, segment, size_bytes, rows in self._read("use", bucket, _USE)
        ]

    def objects(self, bucket: int) -> list[ListedObject]:
        """Return the objects of one bucket."""
        return [ListedObject._make(listed) for listed in self._read("objects", bucket, _OBJECT)]

    def _write(self, kind: str, segment: bytes, packed: bytes) -> None:
        bucket = segment[0] * BUCKETS >> 8
        file = self._files.get((kind, bucket))
        if file is None:
            file = self._files[kind, bucket] = (Path(self._directory.name) / f"{kind}-{bucket}").open("w+b")
        file.write(packed)

    def _read(self, kind: str, bucket: int, layout: Struct) -> Iterator[tuple[Any, ...]]:
        file = self._files.get((kind, bucket))
        if file is None:
            return iter(())
        file.seek(0)
        packed = file.read()
        return layout.iter_unpack(packed)
