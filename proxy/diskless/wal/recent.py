"""The last WAL segments of this process, for the admin port."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from proxy.diskless.wal.segment import BuiltSegment, segment_key

SEGMENTS_REMEMBERED = 100
_MS_PER_S = 1000


@dataclass(slots=True)
class RecentSegment:
    """One that object storage has."""

    key: str
    size_bytes: int
    batches: int
    partitions: int
    uploaded_ms: int
    """When, since 1970."""
    upload_ms: float
    """How long it took."""
    commit_ms: float | None = None
    """The same for the commit that was answered; None before, and if no commit was answered."""


class RecentSegments:
    """SEGMENTS_REMEMBERED of them."""

    def __init__(self) -> None:
        self._segments: OrderedDict[bytes, RecentSegment] = OrderedDict()

    def uploaded(self, built: BuiltSegment, took_s: float) -> None:
        """Object storage has it."""
        self._segments[built.segment] = RecentSegment(
            segment_key(built.segment),
            len(built.data),
            sum(len(run.batches) for run in built.runs),
            len(built.runs),
            time.time_ns() // 1_000_000,
            took_s * _MS_PER_S,
        )
        if len(self._segments) > SEGMENTS_REMEMBERED:
            self._segments.popitem(last=False)

    def committed(self, segment: bytes, took_s: float) -> None:
        """The coordinator has answered."""
        recent = self._segments.get(segment)
        if recent is not None:
            recent.commit_ms = took_s * _MS_PER_S

    def newest(self, limit: int) -> list[RecentSegment]:
        """Return at most `limit` segments, the newest first."""
        return list(reversed(self._segments.values()))[:limit]
