"""The place of each row in a merged object, and the new rows. Pure.

Rows keep their length, except for batches before a log start, and markers of transactions become control batches. So
most of this is known before a byte is read. The new rows are much smaller than the object, because caches, lookups by
time and retention work by rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pipeline.merge.plan import Output
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_rewriting import MAX_ROWS_PER_SWAP, Swap
from proxy.diskless.wal.segment import SEGMENT_OVERHEAD_BYTES
from proxy.records.batches import CONTROL_BATCH_BYTES

ROW_BYTES = 1 << 20
"""A new row takes no more, unless a single old one does."""


class Joined(NamedTuple):
    """Neighbours of one partition that become one row. An executor uses it to report to the driver what it has made."""

    part: int
    """Place in the output."""
    first: int
    """Place of the first row in that part."""
    number: int
    """Number of rows."""
    position: int
    """Position of their first byte in the object."""
    length: int
    """Length in bytes."""


def joined_rows(
    output: Output, unreadable: Collection[Row] = (), left_out: Mapping[Row, int] = MappingProxyType({})
) -> list[Joined]:
    """All of an object in the order in which it lies there, without what can't be read.

    `left_out`: bytes at the beginning of first rows of a log. A gap that the loss of records left is never within a
    row: it would not be seen any more.
    """
    joined: list[Joined] = []
    position = SEGMENT_OVERHEAD_BYTES
    for place, part in enumerate(output.parts):
        for first, number, length in _cut(part.rows, unreadable, left_out):
            joined.append(Joined(place, first, number, position, length))
            position += length
    return joined


def bytes_in_object(row: Row) -> int:
    """Return the length of a row in a merged object."""
    return CONTROL_BATCH_BYTES if row.is_marker else row.length


def object_bytes(joined: list[Joined]) -> int:
    """Size of the object that holds them."""
    return joined[-1].position + joined[-1].length if joined else 0


def old_rows(output: Output, joined: Joined) -> tuple[Row, ...]:
    """Return the rows that become one."""
    return output.parts[joined.part].rows[joined.first : joined.first + joined.number]


def swap_of(output: Output, joined: Joined, topic_id: bytes, segment: bytes) -> Swap:
    """Return the swap for the coordinator once the object exists under the name `segment`."""
    old = old_rows(output, joined)
    new = Row(
        old[0].base_offset,
        old[-1].last_offset,
        segment,
        joined.position,
        joined.length,
        max(row.max_timestamp_ms for row in old),
        max(row.append_time_ms for row in old),
        log_append_time=False,  # it stands in the batches now
        offsets_in_place=True,
    )
    return Swap(topic_id, output.parts[joined.part].partition, old, new)


def _cut(
    rows: tuple[Row, ...], unreadable: Collection[Row], left_out: Mapping[Row, int]
) -> Iterator[tuple[int, int, int]]:
    """First, number and bytes of rows that are joined."""
    first = count = length = 0
    for place, row in enumerate(rows):
        row_bytes = bytes_in_object(row) - left_out.get(row, 0)
        is_bad = row in unreadable
        is_full = count == MAX_ROWS_PER_SWAP or length + row_bytes > ROW_BYTES
        if count and (is_bad or is_full or row.base_offset != rows[place - 1].last_offset + 1):
            yield first, count, length
            count = length = 0
        if not is_bad:
            first = first if count else place
            count += 1
            length += row_bytes
    if count:
        yield first, count, length
