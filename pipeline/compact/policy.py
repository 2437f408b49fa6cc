"""How far a compacted log can be cleaned, and whether it is worth it: `LogCleanerManager` of Kafka 4.x. Sans-io.

Differences: a diskless log has no active segment, so everything confirmed can be cleaned, except for what
`min.compaction.lag.ms` keeps. Times and sizes come from a row of the index instead of from a segment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from proxy.coordinator.interface import Row
from proxy.topics.topic_configs import java_double

_LONGEST_MS = 2**63 - 1


class CompactionConfigs(NamedTuple):
    """The configs of one topic that compaction goes by; their defaults are Kafka's own."""

    delete_retention_ms: int = 86_400_000
    """`delete.retention.ms`."""
    min_lag_ms: int = 0
    """`min.compaction.lag.ms`."""
    max_lag_ms: int = _LONGEST_MS
    """`max.compaction.lag.ms`."""
    min_dirty_ratio: float = 0.5
    """`min.cleanable.dirty.ratio`."""


def configs_of(configs: Mapping[str, str]) -> CompactionConfigs:
    """Return the configs from the registry's entry of a topic. Raises ValueError for a value that is not a number."""
    default = CompactionConfigs()
    ratio = java_double(configs.get("min.cleanable.dirty.ratio", str(default.min_dirty_ratio)))
    if math.isnan(ratio):
        raise ValueError(f"min.cleanable.dirty.ratio={configs['min.cleanable.dirty.ratio']} is not a number")
    return CompactionConfigs(
        int(configs.get("delete.retention.ms", default.delete_retention_ms)),
        max(int(configs.get("min.compaction.lag.ms", default.min_lag_ms)), 0),
        max(int(configs.get("max.compaction.lag.ms", default.max_lag_ms)), 0),
        ratio,
    )


def first_dirty_offset(compacted: int, log_start_offset: int, high_watermark: int) -> int:
    """Return the offset where cleaning begins. `compacted` is the end of the last cleaning; 0 if there was none."""
    return compacted if log_start_offset <= compacted <= high_watermark else log_start_offset


class Cleanable:
    """Adds up the rows of one log, in their order, as far as they can be cleaned."""

    def __init__(self, configs: CompactionConfigs, *, first_dirty: int, now_ms: int) -> None:
        self._configs = configs
        self._first_dirty = first_dirty
        self._now_ms = now_ms
        self._earliest_dirty_ms = _LONGEST_MS
        self.joined: Row | None = None
        """The first row with anything that was never cleaned, if a merge has made it from several."""
        self.clean_bytes = 0
        """Bytes of rows that were compacted before."""
        self.dirty_bytes = 0
        """Bytes of the other rows, as far as they can be cleaned."""
        self.end_offset = 0
        """Exclusive."""

    def takes(self, row: Row) -> bool:
        """Add the next row; return False if neither it nor the rows after it can be cleaned yet."""
        newest_ms = max(row.max_timestamp_ms, row.append_time_ms) if row.log_append_time else row.max_timestamp_ms
        is_dirty = row.last_offset >= self._first_dirty
        if is_dirty and self._configs.min_lag_ms > 0 and newest_ms > self._now_ms - self._configs.min_lag_ms:
            return False
        if is_dirty:
            if not self.dirty_bytes and row.offsets_in_place:
                self.joined = row
            self.dirty_bytes += row.length
            if newest_ms > 0:
                self._earliest_dirty_ms = min(self._earliest_dirty_ms, newest_ms)
        else:
            self.clean_bytes += row.length
        self.end_offset = row.last_offset + 1
        return True

    @property
    def wants_first_time(self) -> bool:
        """Return whether it may be due by the time of the first batch in `joined`: that of its row is its newest."""
        return self.joined is not None and self._configs.max_lag_ms < _LONGEST_MS and not self.is_due

    def begins_at(self, first_ms: int) -> None:
        """Set the time of the first batch that was never cleaned, in milliseconds since 1970."""
        if first_ms > 0:
            self._earliest_dirty_ms = min(self._earliest_dirty_ms, first_ms)

    @property
    def dirty_ratio(self) -> float:
        """Return the never cleaned share of what can be cleaned."""
        in_all = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / in_all if in_all else 0.0

    @property
    def is_due(self) -> bool:
        """Return whether Kafka would clean it now, by `min.cleanable.dirty.ratio` or `max.compaction.lag.ms`."""
        too_old = self._earliest_dirty_ms < self._now_ms - self._configs.max_lag_ms
        return self.dirty_bytes > 0 and (too_old or self.dirty_ratio > self._configs.min_dirty_ratio)
