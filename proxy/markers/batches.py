"""Transaction markers in the log of a shadow, as a Fetch returns it. Sans-io.

A marker is the one record of a control batch (KIP-98): its key has a version and a type, its value a version and the
epoch of the transaction coordinator (`ControlRecordType`, `EndTransactionMarker`). Later versions may add fields at
the end. Control batches of other types are skipped, and so are *stray* records that a producer sent to the brokers
directly, past the proxies.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from proxy.coordinator.interface_transactions import NO_EPOCH, Marker
from proxy.protocol.errors import CORRUPT_MESSAGE
from proxy.records.batches import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    RecordsError,
    read_header,
)
from proxy.records.varint import read_varint
from proxy.wire.primitives import Buffer

ABORT, COMMIT = 0, 1
"""Types of control records that end a transaction; the others are about the log itself."""

_HEAD = struct.Struct(">qi")
"""Base offset and length."""
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class MarkersFound(NamedTuple):
    """The markers in a part of a shadow's log."""

    markers: tuple[Marker, ...]
    next_offset: int
    """First offset after the last whole batch; the first offset of the part if there is none."""
    leader_epoch: int
    """Leader epoch of the last whole batch; NO_EPOCH if there is none."""


def read_markers(records: Buffer, from_offset: int) -> MarkersFound:
    """Return the markers from an offset on. A batch at the end that is cut off is left out.

    Raises RecordsError if the bytes are not batches, or if a control batch is damaged.
    """
    data, at = memoryview(records), 0
    markers: list[Marker] = []
    next_offset, leader_epoch = from_offset, NO_EPOCH
    while len(data) - at >= _HEAD.size:
        base_offset, length = _HEAD.unpack_from(data, at)
        end = at + LENGTH_END + length
        if length < HEADER_BYTES - LENGTH_END:
            raise _corrupt(base_offset, f"it says {length} bytes")
        if end > len(data):
            break
        header = read_header(data, at)
        if header.last_offset_delta < 0 or base_offset < 0:
            raise _corrupt(base_offset, f"it ends {header.last_offset_delta} offsets later")
        if header.is_control and base_offset >= from_offset:
            marker = _marker(data[at:end], header, base_offset)
            markers += [] if marker is None else [marker]
        next_offset = max(next_offset, base_offset + header.last_offset_delta + 1)
        leader_epoch = header.partition_leader_epoch
        at = end
    return MarkersFound(tuple(markers), next_offset, leader_epoch)


def _marker(batch: memoryview, header: BatchHeader, base_offset: int) -> Marker | None:
    """Return the marker in a control batch; None if it is of another type. Raises RecordsError."""
    if crc32c(batch[CRC_COVERS_FROM:]) != header.crc:
        raise _corrupt(base_offset, "its CRC is wrong")
    try:
        _, at = read_varint(batch, HEADER_BYTES)
        _, at = read_varint(batch, at + 1)
        offset_delta, at = read_varint(batch, at)
        key_length, key_at = read_varint(batch, at)
        if key_length < _KEY.size:
            raise _corrupt(base_offset, f"its key has {key_length} bytes")
        _, kind = _KEY.unpack_from(batch, key_at)
        if kind not in (ABORT, COMMIT):
            return None
        value_length, value_at = read_varint(batch, key_at + key_length)
        if value_length < _VALUE.size:
            raise _corrupt(base_offset, f"its value has {value_length} bytes")
        _, coordinator_epoch = _VALUE.unpack_from(batch, value_at)
    except (IndexError, struct.error) as error:
        raise _corrupt(base_offset, "its record ends too early") from error
    if header.producer_id < 0 or header.producer_epoch < 0 or offset_delta != header.last_offset_delta:
        raise _corrupt(base_offset, "it is of no producer")
    return Marker(
        base_offset + offset_delta,
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        kind == COMMIT,
        header.max_timestamp_ms,
        bool(header.timestamp_type),
    )


def _corrupt(base_offset: int, text: str) -> RecordsError:
    return RecordsError(CORRUPT_MESSAGE, f"the batch at offset {base_offset} of a placeholder topic: {text}")
