"""The interface of the journal: the order of all writes to the coordinator, kept where acknowledged records are safe.

Each shard of the coordinator has a partition of the journal, and the registry of diskless topics has the last one. A
write is appended as one record, and then applied to the store (`lua/fence.lua`). The record's offset is its *position*:
positions of a partition have no gaps, so a store that has applied everything before position n knows that it misses
nothing. The journal decides the order, and the store is a view that any proxy can bring up to date.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JournalUnavailable(Exception):
    """The journal did not answer, or rejected the call."""

    def __init__(self, reason: str, *, appended: bool) -> None:
        super().__init__(reason)
        self.appended = appended
        """Whether the record may be in the journal all the same; False if it certainly is not."""


class Appended(NamedTuple):
    """The place of a record in its partition of the journal."""

    position: int
    time_ms: int
    """Time of the append by the journal's clock, in ms since 1970."""


class JournalRecord(NamedTuple):
    """A record as it is read."""

    position: int
    time_ms: int
    """Time of the append by the journal's clock, in ms since 1970."""
    value: bytes


class Journal(Protocol):
    """Ordered records by partition. Each method may raise JournalUnavailable."""

    @property
    def identity(self) -> bytes:
        """Name of this journal (16 bytes); another journal has another one, also if it was created under its name."""

    async def append(self, partition: int, value: bytes) -> Appended:
        """Append a record, and return when it can't be lost any more.

        Records of one process in one partition keep the order of the calls.
        """

    async def read(self, partition: int, from_position: int, max_bytes: int) -> Sequence[JournalRecord]:
        """Return records from a position on, at least one if there is one; empty at the end.

        Raises PositionTrimmed if the journal does not hold the position any more.
        """

    async def end(self, partition: int) -> int:
        """Return the position after the last record that can't be lost any more: no record below it was missed."""

    async def start(self, partition: int) -> int:
        """Return the position of the oldest record."""

    async def trim(self, partition: int, before: int) -> int:
        """Delete the records before a position, and return the position of the oldest record."""


class PositionTrimmed(Exception):
    """The journal begins after the position."""

    def __init__(self, start: int) -> None:
        super().__init__(f"the journal begins at position {start}")
        self.start = start
