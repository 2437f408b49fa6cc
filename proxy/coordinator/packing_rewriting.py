"""The bytes of the arguments and replies of the scripts of `rewriting.py`; `packing.py` has the others, and the
reasons."""

from __future__ import annotations

from struct import Struct

from proxy.coordinator.interface import Row, SegmentUse
from proxy.coordinator.interface_rewriting import IndexedRow, IndexPage, LogState, Swap, SwapAnswer
from proxy.coordinator.packing import (
    ROW_HAS_OFFSETS_IN_PLACE,
    ROW_IS_LOG_APPEND_TIME,
    exact,
    pack_checked,
    row_of,
)
from proxy.coordinator.packing_state import REPLY_HEADER_BYTES
from proxy.coordinator.shards import partition_key

_SWAP = Struct(">20sI?")
_ROW_OF_SWAP = Struct(">Bqq16sIIqq")
_INDEXED_ROW = Struct(">q8xBq16sIIqqq")
_ROW_FORMAT = 1
_OFFSET = Struct(">q")
_MARK = Struct(">20sq")
_PAGE = Struct(">20sqI")
_LOG_STATE = Struct(">?qqqqqqq")
_PLACE = Struct(">I")
_USE = Struct(">qI")
_USED_SEGMENT = Struct(">16sqI")


def pack_swap(swap: Swap) -> bytes:
    """Return one swap for `replace.lua`. Raises ValueError if a number is out of the range that a row can have."""
    key = partition_key(swap.topic_id, swap.partition)
    rows = swap.old if swap.new is None else (*swap.old, swap.new)
    return _SWAP.pack(key, len(swap.old), swap.new is not None) + b"".join(map(_pack_row, rows))


def unpack_swap_answers(reply: bytes) -> list[SwapAnswer]:
    """Return the answer in the reply of `replace.lua`."""
    return [SwapAnswer(answer) for answer in reply[REPLY_HEADER_BYTES:]]


def unpack_offsets(reply: bytes) -> list[int]:
    """Return the answer in the reply of `compacted.lua`."""
    return [offset for (offset,) in _OFFSET.iter_unpack(reply[REPLY_HEADER_BYTES:])]


def pack_mark(key: bytes, offset: int) -> bytes:
    """Return one mark for `mark_compacted.lua`."""
    return pack_checked(_MARK, key, exact(offset))


def pack_page(key: bytes, from_offset: int, max_rows: int) -> bytes:
    """Return the request of `index_page.lua`."""
    return pack_checked(_PAGE, key, exact(max(0, from_offset)), max_rows)


def unpack_page(reply: bytes) -> IndexPage:
    """Return the answer in the reply of `index_page.lua`."""
    lives, *figures, next_offset = _LOG_STATE.unpack_from(reply, REPLY_HEADER_BYTES)
    packed_rows = _INDEXED_ROW.iter_unpack(reply[REPLY_HEADER_BYTES + _LOG_STATE.size :])
    rows = tuple(
        IndexedRow(row_of(flags, base, last, fields), running_maximum)
        for last, flags, base, *fields, running_maximum in packed_rows
    )
    return IndexPage(LogState._make(figures) if lives else None, rows, next_offset)


def pack_place(most: int, place: bytes) -> bytes:
    """Return the request of `used_segments.lua`."""
    return _PLACE.pack(most) + place


def unpack_used_segments(reply: bytes) -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
    """Return the answer in the reply of `used_segments.lua`: segments, and the place to continue from."""
    at = REPLY_HEADER_BYTES + 1 + reply[REPLY_HEADER_BYTES]
    used = [(segment, SegmentUse(size, rows)) for segment, size, rows in _USED_SEGMENT.iter_unpack(reply[at:])]
    return used, reply[REPLY_HEADER_BYTES + 1 : at]


def pack_correction(segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bytes:
    """Return the request of `correct_use.lua`. Raises ValueError if a number is out of range."""
    return pack_checked(_USED_SEGMENT, segment, *expected) + pack_checked(_USE, *counted)


def _pack_row(row: Row) -> bytes:
    flags = ROW_IS_LOG_APPEND_TIME * row.log_append_time + ROW_HAS_OFFSETS_IN_PLACE * row.offsets_in_place
    return pack_checked(_ROW_OF_SWAP, _ROW_FORMAT + flags, *row[:7])
