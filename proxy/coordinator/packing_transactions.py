"""The bytes of the arguments and replies of the scripts of `transactions.py`; `packing.py` has the others, and the
reasons."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from proxy.coordinator.interface_index import Row
from proxy.coordinator.interface_transactions import (
    EnlistAnswer,
    Enlistment,
    Marker,
    MarkersApplied,
    MarkersRead,
    OpenTransaction,
    ShadowPosition,
)
from proxy.coordinator.packing import MAX_EXACT, ROW_IS_LOG_APPEND_TIME, exact, pack_checked
from proxy.coordinator.packing_state import REPLY_HEADER_BYTES
from proxy.coordinator.shards import PARTITION_BYTES, partition_key, split_partition_key

_ENLISTMENT = Struct(">20sqhq")
_PART = Struct(">20sqqiI")
_MARKER = Struct(">qqhiBBq")
_APPLIED = Struct(">hqII")
_POSITION = Struct(">?iq")
_MARKER_SEGMENT = Struct(">qhiBx")
_MILLISECONDS = Struct(">Q")
_COUNT = Struct(">I")
_OPEN = Struct(">20sqhqqq")


def pack_enlistment(enlistment: Enlistment) -> bytes:
    """Return one request for `enlist.lua`. Raises ValueError if a number is out of range."""
    key = partition_key(enlistment.topic_id, enlistment.partition)
    if enlistment.producer_id < 0 or enlistment.producer_epoch < 0 or not 0 <= enlistment.markers_from <= MAX_EXACT:
        raise ValueError(f"{enlistment} is not of a transactional producer")
    return pack_checked(_ENLISTMENT, key, enlistment.producer_id, enlistment.producer_epoch, enlistment.markers_from)


def unpack_enlist_answers(reply: bytes) -> list[EnlistAnswer]:
    """Return the answers in the reply of `enlist.lua`."""
    return [EnlistAnswer(answer) for answer in reply[REPLY_HEADER_BYTES:]]


def pack_markers(part: MarkersRead) -> bytes:
    """Return one request for `apply_markers.lua`. Raises ValueError if a number is out of range."""
    key = partition_key(part.topic_id, part.partition)
    parts = [
        pack_checked(_PART, key, part.from_offset, part.next_offset, part.leader_epoch, len(part.markers)),
    ]
    for marker in part.markers:
        # A marker that is known to be lost is before an empty part.
        first = min(part.from_offset, part.next_offset - 1)
        if marker.producer_id < 0 or not first <= marker.offset < part.next_offset <= MAX_EXACT:
            raise ValueError(f"{marker} is not a marker of offsets {part.from_offset} to {part.next_offset}")
        parts.append(
            pack_checked(
                _MARKER,
                marker.offset,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.committed,
                ROW_IS_LOG_APPEND_TIME * marker.log_append_time,
                exact(marker.timestamp_ms),
            )
        )
    return b"".join(parts)


def pack_milliseconds(milliseconds: int) -> bytes:
    """Return the third argument of `apply_markers.lua`, or the argument of `followed.lua`."""
    return _MILLISECONDS.pack(min(milliseconds, MAX_EXACT))


def unpack_applied(reply: bytes) -> Iterator[MarkersApplied]:
    """Yield the answers in the reply of `apply_markers.lua`."""
    return map(MarkersApplied._make, _APPLIED.iter_unpack(reply[REPLY_HEADER_BYTES:]))


def unpack_positions(reply: bytes) -> Iterator[ShadowPosition | None]:
    """Yield the answers in the reply of `shadow_positions.lua`."""
    for exists, leader_epoch, next_offset in _POSITION.iter_unpack(reply[REPLY_HEADER_BYTES:]):
        yield ShadowPosition(leader_epoch, next_offset) if exists else None


def unpack_followed(reply: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield topic ID and partition of each log in the reply of `followed.lua`."""
    body = reply[REPLY_HEADER_BYTES:]
    for at in range(0, len(body), PARTITION_BYTES):
        yield split_partition_key(body[at : at + PARTITION_BYTES])


def pack_open_page(count: int, place: bytes) -> bytes:
    """Return the argument of `open_transactions.lua`; `place` is empty at first."""
    return _COUNT.pack(count) + place


def unpack_open_page(reply: bytes) -> tuple[list[OpenTransaction], bytes]:
    """Return the transactions in the reply of `open_transactions.lua`, and the place to continue; empty at the end."""
    at = REPLY_HEADER_BYTES + 1
    end = at + reply[REPLY_HEADER_BYTES]
    found = [
        OpenTransaction(*split_partition_key(partition), *fields)
        for partition, *fields in _OPEN.iter_unpack(reply[end:])
    ]
    return found, reply[at:end]


def marker_of(row: Row) -> Marker:
    """Return the marker in a row of length 0. Its offset is that of the log, not of the shadow's."""
    producer_id, producer_epoch, coordinator_epoch, committed = _MARKER_SEGMENT.unpack(row.segment)
    return Marker(
        row.base_offset,
        producer_id,
        producer_epoch,
        coordinator_epoch,
        bool(committed),
        row.max_timestamp_ms,
        row.log_append_time,
    )
