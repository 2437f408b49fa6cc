"""WAL segments (KIP-1163): build one from produced batches, read one for a dump or an audit. Sans-io.

Format: one byte with the format version, followed by record batches v2, with those of one partition next to each other.
A segment does not say which partition a batch belongs to: the coordinator knows.

- 0x00, what proxies upload: batches exactly as producers sent them (offsets unset), in the order of arrival.
- 0x01, a *merged object*, the result of merges and compactions: batches as readers get them, with base offset,
  partition leader epoch (0) and, under LogAppendTime, time and CRC in place; offsets ascend, with possible gaps.
  Its rows say so, too (`Row.offsets_in_place`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.coordinator.interface import PartitionRun, ProposedBatch, Row
from proxy.coordinator.interface_transactions import NO_MARKERS, NOT_TRANSACTIONAL
from proxy.records.batches import BatchHeader, check_offsets, read_header
from proxy.wire.steps import Steps, at_once, in_slices

FORMAT_VERSION = 0
MERGED_FORMAT_VERSION = 1
_PREAMBLE = bytes([FORMAT_VERSION])
_MERGED_PREAMBLE = bytes([MERGED_FORMAT_VERSION])
MAX_OBJECT_BYTES = 2**32 - 1
"""Positions in it are kept in four bytes."""
SEGMENT_OVERHEAD_BYTES = len(_PREAMBLE)
"""Bytes of every segment in addition to its batches."""
SEGMENT_KEY = "[0-9a-f]{2}/([0-9a-f]{32})"
"""Regular expression for the keys of segments; its group is the UUID."""


class SegmentError(Exception):
    """The bytes are no segment that this release can read."""


class BuiltSegment(NamedTuple):
    """A segment that is ready for its upload, and the runs to commit after it."""

    segment: bytes
    """16 bytes: its UUID."""
    data: bytearray
    runs: tuple[PartitionRun, ...]


class SegmentBatch(NamedTuple):
    """One batch of a segment that is read."""

    position: int
    """Position of its first byte, in bytes from the segment's beginning."""
    header: BatchHeader


class SegmentBuilder:
    """Collects batches without copying them; `build` copies each once."""

    __slots__ = ("_parts", "_proposed", "_stamped", "batch_count", "bytes_buffered")

    def __init__(self) -> None:
        self._parts: dict[tuple[bytes, int], list[memoryview]] = {}
        self._proposed: dict[tuple[bytes, int], list[ProposedBatch]] = {}
        self._stamped: set[tuple[bytes, int]] = set()
        """Partitions under LogAppendTime."""
        self.bytes_buffered = 0
        """Bytes of the batches so far, without the format version."""
        self.batch_count = 0

    def add(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        *,
        log_append_time: bool = False,
        markers_from: int = NO_MARKERS,
    ) -> None:
        """Append one batch to its partition's run.

        `batch`: its bytes, referred to until `build`, so they must not change. `header`: what `check_batch` gave.
        `log_append_time`: of the whole run, if of any batch; its config has just changed then. `markers_from`: see
        `ProposedBatch`.
        """
        key = (topic_id, partition)
        if log_append_time:
            self._stamped.add(key)
        parts = self._parts.get(key)
        if parts is None:
            parts = self._parts[key] = []
            self._proposed[key] = []
        parts.append(batch)
        self._proposed[key].append(
            ProposedBatch(
                header.length,
                header.record_count,
                header.max_timestamp_ms,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                _transaction_version(header, markers_from),
                markers_from,
            )
        )
        self.bytes_buffered += header.length
        self.batch_count += 1

    def discard(self, topic_id: bytes, partition: int) -> None:
        """Take a partition's batches out again."""
        self._parts.pop((topic_id, partition), None)
        self._stamped.discard((topic_id, partition))
        for batch in self._proposed.pop((topic_id, partition), ()):
            self.bytes_buffered -= batch.length
            self.batch_count -= 1

    def build(self, segment: bytes | None = None) -> BuiltSegment:
        """Return all batches as one segment, partitions ascending, so that merges find a partition's batches together.

        `segment` is its 16-byte UUID; a random one if None. The builder stays as it is, so the same batches can be
        built again under a second name.
        """
        return at_once(self.build_in_steps(segment))

    def build_in_steps(self, segment: bytes | None = None) -> Steps[BuiltSegment]:
        """Do `build` with pauses. A partition that is discarded meanwhile may be in the segment."""
        pieces: list[bytes | memoryview] = [_PREAMBLE]
        runs: list[PartitionRun] = []
        position = len(_PREAMBLE)
        keys = sorted(self._parts)
        for some in in_slices(keys):
            for key in some:
                proposed = tuple(self._proposed.get(key, ()))
                if proposed:
                    runs.append(PartitionRun(*key, position, proposed, key in self._stamped))
                    pieces += self._parts[key]
                    position += sum(batch.length for batch in proposed)
            if len(keys) > len(some):
                yield
        return BuiltSegment(segment or uuid.uuid4().bytes, bytearray().join(pieces), tuple(runs))


def _transaction_version(header: BatchHeader, markers_from: int) -> int:
    """Return the transaction version of a batch."""
    if not header.is_transactional:
        return NOT_TRANSACTIONAL
    return 1 if markers_from == NO_MARKERS else 2


class MergedBuilder:
    """Collects the content of a merged object: the rows of one partition after the other, each copied once.

    `segment` is the object's 16-byte UUID, a random one if None. Another attempt needs another UUID: objects are
    immutable, and of two attempts one is garbage.
    """

    __slots__ = ("data", "rows", "segment")

    def __init__(self, segment: bytes | None = None) -> None:
        self.segment = segment or uuid.uuid4().bytes
        self.data = bytearray(_MERGED_PREAMBLE)
        """The object, once all is added."""
        self.rows: list[Row] = []
        """All that were added."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the object so far."""
        return len(self.data)

    def add(
        self,
        batches: bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview],
        *,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        append_time_ms: int,
    ) -> Row:
        """Append whole batches with offsets, leader epoch and time in place; return their row.

        `base_offset` is that of the batches they replace, at or before their first. `last_offset` is that of the last
        batch. Raises RecordsError (CORRUPT_MESSAGE) if the batches are not within these, or do not ascend, with nothing
        added, and ValueError if the object would have more than MAX_OBJECT_BYTES.
        """
        run = batches if isinstance(batches, bytes | bytearray | memoryview) else b"".join(batches)
        check_offsets(run, base_offset, last_offset)
        position = len(self.data)
        if position + len(run) > MAX_OBJECT_BYTES:
            raise ValueError(f"a merged object of more than {MAX_OBJECT_BYTES} bytes can't be addressed")
        self.data += run
        row = Row(
            base_offset,
            last_offset,
            self.segment,
            position,
            len(run),
            max_timestamp_ms,
            append_time_ms,
            offsets_in_place=True,
        )
        self.rows.append(row)
        return row


def segment_key(segment: bytes) -> str:
    """Return the object key of a segment: its UUID in 32 hex digits, under a folder of the first two.

    The folder spreads keys over a store's partitions, and files over directories.
    """
    name = segment.hex()
    return f"{name[:2]}/{name}"


def segment_of(key: str) -> bytes:
    """Return the segment of an object's key."""
    return bytes.fromhex(key.rpartition("/")[2])


def check_preamble(data: bytes | bytearray | memoryview) -> int:
    """Return the format version of an object, given its first bytes as `data`.

    Raises SegmentError if the version is unknown.
    """
    if not data:
        raise SegmentError("the object is empty: its upload was cut off, or it is not a WAL segment")
    if data[0] not in (FORMAT_VERSION, MERGED_FORMAT_VERSION):
        raise SegmentError(
            f"unknown format version {data[0]} (known are {FORMAT_VERSION} and {MERGED_FORMAT_VERSION}): the "
            f"object is not a WAL segment, or a newer release wrote it"
        )
    return data[0]


def read_segment(data: bytes | bytearray | memoryview) -> Iterator[SegmentBatch]:
    """Yield the batches of a segment in their order in it; CRCs are not computed.

    Raises SegmentError for an unknown format version, and RecordsError at the first bytes that are not a batch.
    """
    check_preamble(data)
    position = len(_PREAMBLE)
    while position < len(data):
        header = read_header(data, position)
        yield SegmentBatch(position, header)
        position += header.length
