"""The options of a compaction."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
MAX_TASK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """The choice of logs to compact, and the size of the pieces."""

    force: bool = False
    """Also logs that are not due by `min.cleanable.dirty.ratio` and `max.compaction.lag.ms`."""
    task_bytes: int = 128 * MIB
    """Bytes that one task reads; it has the rest of them in memory."""
    now_ms: int | None = None
    """Milliseconds since 1970; the store's clock if None."""

    def __post_init__(self) -> None:
        if not 1 <= self.task_bytes <= MAX_TASK_BYTES:
            raise ValueError("task bytes must be from 1 to 1 GiB: positions in an object are 32 bits")
