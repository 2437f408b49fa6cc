"""Compare the bytes in the bucket with the bytes that rows name: none may be missing, and all must be explained.

An object may exist for one of three reasons. A row names it. A row named it, and the time for its deletion is not over.
Or it is young: its commit may be under way, or was lost with a proxy that was killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from pipeline.source.reach import reached
from proxy.config import Settings
from proxy.coordinator.interface import FindRequest
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.lease import LEASE_MS
from tests.retention_under_load.books import Problems

_WHOLE_LOG = 1 << 40
_WORK_SECONDS = 30.0
"""Seconds that two rounds of housekeeping and this check may take on a busy machine."""


class Allowance(NamedTuple):
    """Seconds that an object may stay without a row that names it."""

    dead: float
    """Limit for an object that a row named: it is found, tombstoned, and deleted after the grace period, by another
    proxy if the first one was killed."""
    young: float
    """Limit for an object that no row was ever seen to name: it becomes an orphan when it is old enough, then as
    above."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        garbage = settings.garbage
        dead = (2 * garbage.interval_ms + garbage.grace_ms + LEASE_MS) / 1000 + _WORK_SECONDS
        return cls(dead, (garbage.orphan_age_ms + 2 * garbage.orphan_sweep_interval_ms) / 1000 + dead)


@dataclass
class Figures:
    """Byte counts over all checks."""

    looks: int = 0
    live: int = 0
    """Bytes that rows name."""
    used: int = 0
    """Bytes in objects of which rows name at least a part."""
    bucket: int = 0
    most_live: int = 0
    most_bucket: int = 0
    most_waiting: int = 0
    """Bytes in objects that no row names."""
    least_room: int = 1 << 60
    """Distance between waiting bytes and the limit: bytes that were freed within the allowed time, and one segment per
    uploader."""
    largest_object: int = 0
    oldest_dead_seconds: float = 0.0


class Bucket:
    """Checks coordinator and bucket, one check at a time, in its own event loop."""

    def __init__(self, settings: Settings, problems: Problems, uploaders: int) -> None:
        self._settings = settings
        self._problems = problems
        self._uploaders = uploaders
        self._loop = asyncio.new_event_loop()
        self._open = AsyncExitStack()
        self._reach = self._loop.run_until_complete(self._open.enter_async_context(reached(settings)))
        self._root = Path(settings.storage.url.removeprefix("file://"))
        self.allowance = Allowance.of(settings)
        self.figures = Figures()
        self._last_named: dict[str, float] = {}
        """Monotonic seconds at which a row was last seen to name each object."""
        self._sizes: dict[str, int] = {}
        self._dying: set[str] = set()
        self._strange: set[str] = set()
        self._killed: deque[float] = deque()

    def close(self) -> None:
        """Close the connections to the store and to the journal."""
        self._loop.run_until_complete(self._open.aclose())
        self._loop.close()

    def topics(self) -> dict[str, DisklessTopic]:
        """Return the registry's entries, by name."""
        return {topic.name: topic for topic in self._loop.run_until_complete(self._reach.topics())}

    def proxy_was_killed(self) -> None:
        """Note that a killed proxy may have left uploaded objects without a commit."""
        self._killed.append(time.monotonic())

    def dying(self) -> set[str]:
        """Return the objects that rows named, that no row names now, and that still existed at the last check."""
        return self._dying

    def look(self) -> dict[str, int]:
        """Check once; return the bytes of each object that rows name."""
        before = self._loop.run_until_complete(self._rows())
        objects = self._objects()
        after = self._loop.run_until_complete(self._rows())
        now = time.monotonic()
        for name in before.keys() & after.keys() - objects.keys():
            self._strangely(name, "is gone, and rows name it")
        for name in before.keys() | after.keys():
            self._last_named[name] = now
        waiting, dying = 0, set()
        for name, (size, age) in objects.items():
            self._sizes[name] = size
            if name in before or name in after:
                continue
            waiting += size
            last_named = self._last_named.get(name)
            if last_named is None:
                if age > self.allowance.young:
                    self._strangely(name, f"is there since {age:.0f} s, and no row ever named it")
                continue
            dead = now - last_named
            dying.add(name)
            self.figures.oldest_dead_seconds = max(self.figures.oldest_dead_seconds, dead)
            if dead > self.allowance.dead:
                self._strangely(name, f"is still there {dead:.0f} s after the last row that named it")
        self._dying = dying
        self._note(now, sum(before.values()), objects, before.keys() | after.keys(), waiting)
        return before

    def _note(
        self, now: float, live: int, objects: dict[str, tuple[int, float]], named: set[str], waiting: int
    ) -> None:
        figures = self.figures
        bucket = sum(size for size, _ in objects.values())
        figures.looks += 1
        figures.live += live
        figures.used += bucket - waiting
        figures.bucket += bucket
        figures.most_live = max(figures.most_live, live)
        figures.most_bucket = max(figures.most_bucket, bucket)
        figures.most_waiting = max(figures.most_waiting, waiting)
        figures.largest_object = max([figures.largest_object, *(size for size, _ in objects.values())])
        freed = sum(
            self._sizes.get(name, 0)
            for name, seen in self._last_named.items()
            if name not in named and now - seen <= self.allowance.dead
        )
        while self._killed and now - self._killed[0] > self.allowance.young:
            self._killed.popleft()
        # A killed proxy leaves behind its current uploads, and so does the proxy that follows it.
        uploads = self._uploaders + self._settings.diskless_append_max_uploads * len(self._killed)
        room = freed + uploads * figures.largest_object - waiting
        figures.least_room = min(figures.least_room, room)
        if room < 0:
            self._problems.report(
                f"bucket: {waiting} bytes wait for their deletion, {-room} more than can be explained"
            )
        forgotten = [name for name, seen in self._last_named.items() if now - seen > 2 * self.allowance.dead]
        for name in forgotten:
            if name not in objects:
                del self._last_named[name]
                self._sizes.pop(name, None)

    def _strangely(self, name: str, what: str) -> None:
        if name not in self._strange:
            self._strange.add(name)
            self._problems.report(f"bucket: object {name} {what}")

    def _objects(self) -> dict[str, tuple[int, float]]:
        """Return size and age in seconds of each object."""
        found, now = {}, time.time()
        for folder in self._root.glob("??"):
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        stat = entry.stat()
                    except FileNotFoundError:
                        continue
                    found[entry.name] = stat.st_size, now - stat.st_mtime
        return found

    async def _rows(self) -> dict[str, int]:
        """Return the bytes that rows name, by object."""
        topics = await self._reach.topics()
        asked = [
            FindRequest(topic.topic_id, partition, 0, _WHOLE_LOG)
            for topic in topics
            if any(topic.topic_id)
            for partition in range(topic.partitions)
        ]
        named: dict[str, int] = {}
        while asked:
            more = []
            for request, answer in zip(asked, await self._reach.coordinator.find(asked), strict=True):
                if request.offset < answer.log_start_offset:
                    more.append(request._replace(offset=answer.log_start_offset))
                    continue
                for row in answer.rows:
                    named[row.segment.hex()] = named.get(row.segment.hex(), 0) + row.length
                if answer.rows and answer.rows[-1].last_offset + 1 < answer.high_watermark:
                    more.append(request._replace(offset=answer.rows[-1].last_offset + 1))
            asked = more
        return named
