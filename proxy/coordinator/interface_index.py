"""Rows of the coordinator's index, and their use of segments, as proxies and jobs see them."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """The location of a contiguous range of offsets: the batch coordinates of one accepted part of a partition run."""

    base_offset: int
    last_offset: int
    segment: bytes
    position: int
    length: int
    """0 for the marker of a transaction, which has no object: its producer and outcome are in place of the segment."""
    max_timestamp_ms: int
    append_time_ms: int
    log_append_time: bool = False
    """True if the time of all its records is `append_time_ms`, not the time in their batches."""
    offsets_in_place: bool = False
    """True if its batches have their offsets, leader epoch and time already, as batches of merged objects do. Such
    batches are checked, not patched, when they are read. Their offsets ascend and may have gaps. The first batch does
    not begin before `base_offset`, and the last batch ends at `last_offset`."""

    @property
    def is_marker(self) -> bool:
        """Return whether it is the marker of a transaction, which has no object."""
        return not self.length


class SegmentUse(NamedTuple):
    """The bytes and the number of rows that use one segment; zeros if no row does."""

    size_bytes: int
    rows: int
