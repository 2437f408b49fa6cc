"""The options of a merge."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
MAX_TASK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The choice of rows to merge, and the sizes of the results."""

    target_bytes: int = 64 * MIB
    """Minimum size of an object, if a partition has that much contiguous data; objects are less than twice as large."""
    task_bytes: int = 256 * MIB
    """Bytes of the objects that one task makes; it has them in memory, in addition to what it is reading."""
    min_age_ms: int = 60_000
    """Rows that were appended later are left alone: readers of the tail have them in their caches."""
    max_age_ms: int | None = None
    """Objects that are older and hold bytes that no row uses any more are rewritten, so that these bytes go."""
    min_inputs: int = 4
    """Objects that one object must replace, or it is not made."""

    def __post_init__(self) -> None:
        if not 1 <= self.target_bytes <= self.task_bytes:
            raise ValueError("task bytes must be at least target bytes, and these at least 1")
        if self.task_bytes > MAX_TASK_BYTES:
            raise ValueError("task bytes must be at most 1 GiB: positions in an object are 32 bits")
        if self.min_age_ms < 0 or self.min_inputs < 2 or (self.max_age_ms is not None and self.max_age_ms < 0):
            raise ValueError("ages must not be negative, and min inputs at least 2")
