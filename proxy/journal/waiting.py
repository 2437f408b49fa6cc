"""Values that wait to be appended, in the order of the calls, by partition of the journal."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from proxy.config.journal import Journal
from proxy.coordinator.interface_journal import Appended
from proxy.records.plain import MAX_RECORD_OVERHEAD_BYTES

_MAX_DOUBLINGS = 20


@dataclass(slots=True, eq=False)
class Entry:
    """A value that is being appended."""

    value: bytes
    answer: asyncio.Future[Appended]
    began_s: float
    deadline_s: float
    """The loop's time until which it may be sent."""

    @property
    def size(self) -> int:
        """Return the bytes that it can take in a batch."""
        return len(self.value) + MAX_RECORD_OVERHEAD_BYTES


@dataclass(slots=True, eq=False)
class Line:
    """The entries of one partition. The entries of a request that is under way are not in it."""

    partition: int
    entries: deque[Entry] = field(default_factory=deque)
    busy: bool = False
    """True while a request is under way."""
    not_before_s: float = 0.0
    """The loop's time before which there is no further attempt."""
    attempts: int = 0
    """Failed attempts in a row."""
    stale_version: int | None = None
    """Version of the leaders with which the last attempt failed; None after a success."""
    failure: str = "its leader is not known"
    """Cause of the last failure."""

    def take(self, room_bytes: int) -> list[Entry]:
        """Remove and return the first entries that fit, without cancelled ones."""
        taken: list[Entry] = []
        while self.entries and (self.entries[0].answer.done() or self.entries[0].size <= room_bytes):
            entry = self.entries.popleft()
            if not entry.answer.done():
                taken.append(entry)
                room_bytes -= entry.size
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        """Put entries that were not appended before all others."""
        self.entries.extendleft(reversed(entries))

    def expire(self, now_s: float) -> list[Entry]:
        """Remove and return the entries that have waited for too long; cancelled ones are dropped."""
        expired = []
        while self.entries and (self.entries[0].answer.done() or self.entries[0].deadline_s <= now_s):
            entry = self.entries.popleft()
            if not entry.answer.done():
                expired.append(entry)
        return expired

    def delay(self, now_s: float, settings: Journal, failure: str) -> None:
        """Note a failed attempt, and put off the next one."""
        backoff_ms = min(settings.retry_backoff_ms << min(self.attempts, _MAX_DOUBLINGS), settings.retry_backoff_max_ms)
        self.attempts += 1
        self.not_before_s = now_s + backoff_ms / 1000
        self.failure = failure

    def succeed(self) -> None:
        """Note a successful attempt."""
        self.attempts = 0
        self.stale_version = None
