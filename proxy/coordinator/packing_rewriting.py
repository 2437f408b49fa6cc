"""The bytes of the arguments and replies of the scripts of `rewriting.py`; `packing.py` has the others, and the
reasons."""

from __future__ import annotations

from struct import Struct

from proxy.coordinator.interface import Row, SegmentUse
from proxy.coordinator.interface_rewriting import (
    IndexedRow,
    IndexPage,
    LogState,
    OpenTransaction,
    Swap,
    SwapAnswer,
)
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.coordinator.packing import (
    ROW_HAS_OFFSETS_IN_PLACE,
    ROW_IS_LOG_APPEND_TIME,
    exact,
    pack_checked,
    row_of,
)
from proxy.coordinator.packing_state import REPLY_HEADER_BYTES
from proxy.coordinator.shards import partition_key

_SWAP = Struct(">20sIB")
_HAS_NEW_ROW, _HAS_ENDED = 1, 2
"""Flags of a swap."""
_ENDED = Struct(">I")
_ROW_OF_SWAP = Struct(">Bqq16sIIqq")
_INDEXED_ROW = Struct(">qq8xB16sqIIqq")
_ROW_FORMAT = 1
_OFFSET = Struct(">q")
_MARK = Struct(">20sq")
_PAGE = Struct(">20sqI")
_LOG_STATE = Struct(">?qqqqqqqqII")
_OPEN = Struct(">qqq")
_ABORTED = Struct(">qqqq")
_PLACE = Struct(">I")
_USE = Struct(">qI")
_USED_SEGMENT = Struct(">16sqI")


def pack_swap(swap: Swap) -> bytes:
    """Return one swap for `replace.lua`. Raises ValueError if a number is out of the range that a row can have."""
    key = partition_key(swap.topic_id, swap.partition)
    rows = swap.old if swap.new is None else (*swap.old, swap.new)
    flags = _HAS_NEW_ROW * (swap.new is not None) + _HAS_ENDED * bool(swap.ended)
    packed = _SWAP.pack(key, len(swap.old), flags) + b"".join(map(_pack_row, rows))
    if swap.ended:
        packed += _ENDED.pack(len(swap.ended)) + b"".join(_OFFSET.pack(exact(offset)) for offset in swap.ended)
    return packed


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
    lives, *figures, next_offset, rows, opened = _LOG_STATE.unpack_from(reply, REPLY_HEADER_BYTES)
    rows_at = REPLY_HEADER_BYTES + _LOG_STATE.size
    open_at = rows_at + rows * _INDEXED_ROW.size
    aborted_at = open_at + opened * _OPEN.size
    return IndexPage(
        LogState._make(figures) if lives else None,
        tuple(
            IndexedRow(row_of(flags, base, last, fields), running_maximum)
            for last, base, flags, *fields, running_maximum in _INDEXED_ROW.iter_unpack(reply[rows_at:open_at])
        ),
        next_offset,
        tuple(map(OpenTransaction._make, _OPEN.iter_unpack(reply[open_at:aborted_at]))),
        tuple(map(AbortedTransaction._make, _ABORTED.iter_unpack(reply[aborted_at:]))),
    )


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
