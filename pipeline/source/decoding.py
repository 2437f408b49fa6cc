"""Records of batches into Arrow: aiokafka's C decoder makes objects of them, Arrow takes columns of those.

Decompression is ours, as it is bounded, and knows all codecs without libraries of their own.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from pipeline.source.errors import SourceError
from proxy.inspection.records import MAX_UNCOMPRESSED_BYTES, read_records
from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records import compression
from proxy.records.batches import HEADER_BYTES, BatchHeader, RecordsError
from proxy.storage.interface import Buffer

ARROW_BATCH_BYTES = 1_048_576
"""Approximate bytes of keys and values in one Arrow batch, plus at most one record batch."""
ARROW_BATCH_RECORDS = 65_536

_ATTRIBUTES_POSITION = 21
_ATTRIBUTES = Struct(">h")
_CODEC_MASK = 0x07
_MICROSECONDS = 1_000
_LARGEST_MS = (2**63 - 1) // _MICROSECONDS


Headers = Sequence[tuple[str, bytes | None]]


class AnyRecord(Protocol):
    """The source of the columns."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102
    @property
    def timestamp_type(self) -> int | None: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> Headers: ...  # noqa: D102


class PlainRecord(NamedTuple):
    """A record that the C decoder can't make: one of its header keys is not UTF-8."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode(batch: memoryview, header: BatchHeader, base_offset: int) -> tuple[list[AnyRecord], int]:
    """Return the records of a whole batch, offsets in place, and their decompressed size.

    Raises RecordsError if the bytes do not match the header.
    """
    body: Buffer = batch[HEADER_BYTES : header.length]
    plain: Buffer = batch
    if header.compression:
        try:
            body = compression.decompress(header.compression, body, MAX_UNCOMPRESSED_BYTES)
        except compression.CodecError as error:
            raise RecordsError(CORRUPT_MESSAGE, str(error)) from error
        plain = bytearray(batch[:HEADER_BYTES]) + body
        _ATTRIBUTES.pack_into(plain, _ATTRIBUTES_POSITION, header.attributes & ~_CODEC_MASK)
    try:
        return list(DefaultRecordBatch(plain)), len(body)
    except CorruptRecordException as error:
        raise RecordsError(CORRUPT_MESSAGE, str(error)) from error
    except UnicodeDecodeError:
        return _decode_plainly(batch, header, base_offset), len(body)


def _decode_plainly(batch: memoryview, header: BatchHeader, base_offset: int) -> list[AnyRecord]:
    """Header keys that are not UTF-8 get U+FFFD, as in Java's client."""
    return [
        PlainRecord(
            base_offset + record.offset_delta,
            record.timestamp_ms,
            header.timestamp_type,
            record.key,
            record.value,
            record.headers,
        )
        for record in read_records(batch, header, header_key_errors="replace")
    ]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For moments in which thousands of objects are made that hold no cycles: looking at them costs more than that."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Part(NamedTuple):
    """Consecutive records of one partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int


class ArrowBuilder:
    """Collects records and makes Arrow batches of them, with the columns of `schema`.

    The columns that can be had are those of `schema.FULL`; what is not in `schema` is not looked at. Records are taken
    apart at once: as long as they live, Python's garbage collector goes through them again and again.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._taken: dict[str, list[Any]] = {name: [] for name in schema.names if name in TAKEN}
        self._parts: list[_Part] = []
        self._count = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Return whether it is time to `take`."""
        return self._bytes >= ARROW_BATCH_BYTES or self._count >= ARROW_BATCH_RECORDS

    def add(self, topic: str, partition: int, records: Sequence[AnyRecord], size_bytes: int) -> None:
        """Add records; `size_bytes` is their approximate size."""
        if not records:
            return
        for name, column in self._taken.items():
            column += TAKEN[name](records)
        part = _Part(topic, partition, len(records), records[0].offset, records[-1].offset)
        if self._parts and self._parts[-1][:2] == part[:2]:
            last = self._parts.pop()
            part = part._replace(records=last.records + part.records, first_offset=last.first_offset)
        self._parts.append(part)
        self._count += len(records)
        self._bytes += size_bytes

    def take(self) -> pa.RecordBatch | None:
        """Return the collected records; None if there are none. Raises SourceError."""
        if not self._count:
            return None
        made = pa.RecordBatch.from_arrays([self._column(field) for field in self._schema], schema=self._schema)
        for column in self._taken.values():
            column.clear()
        self._parts.clear()
        self._count = self._bytes = 0
        return made

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name in ("topic", "partition"):
            values = ((getattr(part, field.name), part.records) for part in self._parts)
            return pa.concat_arrays([pa.repeat(pa.scalar(value, field.type), count) for value, count in values])
        taken = self._taken[field.name]
        if field.name == "timestamp":
            return self._timestamps(taken, field.type)
        if field.name == "headers":
            return header_column(taken, field.type)
        return pa.array(taken, field.type)

    def _timestamps(self, taken: list[int], kind: pa.DataType) -> pa.Array:
        try:
            return pc.multiply_checked(pa.array(taken, pa.int64()), _MICROSECONDS).cast(kind)
        except pa.ArrowInvalid:
            place = next(place for place, time_ms in enumerate(taken) if abs(time_ms) > _LARGEST_MS)
            ends = accumulate(part.records for part in self._parts)
            part = next(part for part, end in zip(self._parts, ends, strict=True) if place < end)
            raise SourceError(
                f"{part.topic}-{part.partition} has a timestamp that Spark can't hold among offsets "
                f"{part.first_offset} to {part.last_offset}: {taken[place]} ms"
            ) from None


TAKEN: dict[str, Callable[[Sequence[AnyRecord]], list[Any]]] = {
    "key": lambda records: [record.key for record in records],
    "value": lambda records: [record.value for record in records],
    "offset": lambda records: [record.offset for record in records],
    "timestamp": lambda records: [record.timestamp for record in records],
    "timestampType": lambda records: [record.timestamp_type for record in records],
    "headers": lambda records: [record.headers for record in records],
}
"""The columns that records themselves have."""


def header_column(headers: Sequence[Headers], kind: pa.ListType) -> pa.Array:
    """Headers of records as Spark's Kafka source has them: null if a record has none."""
    if not any(headers):
        return pa.nulls(len(headers), kind)
    keys: list[str] = []
    values: list[bytes | None] = []
    ends: list[int | None] = [0]
    for of_record in headers:
        for key, value in of_record:
            keys.append(key)
            values.append(value)
        ends.append(len(keys))
    # A null in the place where a list begins makes that list null.
    starts = [start if start != end else None for start, end in pairwise(ends)]
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(kind.value_type)
    )
    return pa.ListArray.from_arrays(pa.array([*starts, len(keys)], pa.int32()), pairs, type=kind)
