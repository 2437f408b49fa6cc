"""Partitions as Metadata and DescribeTopicPartitions list them: skip them, or give them one leader.

Both begin a partition with error code, index, leader ID and (Metadata from v7) leader epoch, and go on with arrays of
node IDs. On real clusters the partitions of a topic mostly have the same shape, so a topic is looked at column by
column first, and partition by partition only where one differs.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from proxy.wire.primitives import INT32, NO_TAGS, check_end, skip_int32_array, skip_tags, write_count

_FEWEST_FOR_COLUMNS = 3
_MOST_AT_ONCE = 64
_NO_ERROR = b"\0\0"
_TAGS_THEN_NO_ERROR = NO_TAGS + _NO_ERROR


class PartitionLayout(NamedTuple):
    """How a version writes a partition."""

    flexible: bool
    leader_epoch: bool
    node_arrays: int
    """Replicas, ISR, and whatever else of node IDs follows."""


class PartitionWalker:
    """Walks over the partitions of one response's topics. `leader` is whom `lead` names."""

    def __init__(self, layout: PartitionLayout, leader: int = -1) -> None:
        flexible = layout.flexible
        alone = write_count(1, flexible) + INT32.pack(leader)
        self._layout = layout
        self._fixed = 14 if layout.leader_epoch else 10
        self._leader = INT32.pack(leader)
        self._nodes = alone + alone + write_count(0, flexible) * (layout.node_arrays - 2)
        self._columnar = flexible and layout.leader_epoch
        self._columns: list[tuple[int, int]] = []
        """Of the last topic's partitions: where the length of each array and of the tagged fields is, and how much."""
        self._stride = 0

    def skip(self, data: memoryview, at: int, count: int) -> int:
        """The position behind `count` partitions."""
        if count >= _FEWEST_FOR_COLUMNS and self._columnar and self._same_shape(data, at, count):
            return at + self._stride * count
        for _ in range(count):
            at = self._skip_one(data, at)
            if self._layout.flexible:
                at = skip_tags(data, at)
        check_end(data, at)
        return at

    def lead(self, data: memoryview, at: int, count: int, out: bytearray) -> int:
        """Append `count` partitions to `out` with the leader as sole replica and ISR, and no error.

        Index, leader epoch and tagged fields stay; every further array of node IDs is empty. Returns the position
        behind them.
        """
        if count >= _FEWEST_FOR_COLUMNS and self._columnar and self._same_shape(data, at, count):
            stride, separator = self._stride, self._nodes + _TAGS_THEN_NO_ERROR
            out += _NO_ERROR
            for left in range(count, 0, -_MOST_AT_ONCE):
                some = min(left, _MOST_AT_ONCE)
                kept = _index_and_epoch(stride, some).unpack_from(data, at)
                pieces = [b"", self._leader, b"", separator] * some
                pieces[0::4], pieces[2::4] = kept[0::2], kept[1::2]
                out += b"".join(pieces)
                at += stride * some
            del out[-len(_NO_ERROR) :]
            return at
        for _ in range(count):
            start, at = at, self._skip_one(data, at)
            out += _NO_ERROR
            out += data[start + 2 : start + 6]
            out += self._leader
            out += data[start + 10 : start + self._fixed]
            out += self._nodes
            if self._layout.flexible:
                start, at = at, skip_tags(data, at)
                out += data[start:at]
            check_end(data, at)
        return at

    def _skip_one(self, data: memoryview, at: int) -> int:
        """The position of the tagged fields."""
        at += self._fixed
        for _ in range(self._layout.node_arrays):
            at = skip_int32_array(data, at, self._layout.flexible)
        return at

    def _same_shape(self, data: memoryview, at: int, count: int) -> bool:
        """Whether all partitions have the first one's array lengths, and no tagged fields; sets `_stride`."""
        return (self._stride > 0 and self._fits(data, at, count)) or (
            self._learn_shape(data, at) and self._fits(data, at, count)
        )

    def _fits(self, data: memoryview, at: int, count: int) -> bool:
        stride = self._stride
        partitions = data[at : at + stride * count].tobytes()
        if len(partitions) != stride * count:
            return False
        for column, length in self._columns:  # noqa: SIM110  # all() takes twice as long
            if partitions[column::stride].count(length) != count:
                return False
        return True

    def _learn_shape(self, data: memoryview, at: int) -> bool:
        column, columns = self._fixed, []
        for _ in range(self._layout.node_arrays):
            length = data[at + column]
            if not 0 < length < 0x80:
                return False
            columns.append((column, length))
            column += 4 * length - 3
        self._columns, self._stride = [*columns, (column, 0)], column + 1
        return True


@lru_cache(maxsize=1024)
def _index_and_epoch(stride: int, count: int) -> struct.Struct:
    """Reads index and leader epoch of `count` partitions as bytes."""
    return struct.Struct(f">{f'2x4s4x4s{stride - 14}x' * count}")
