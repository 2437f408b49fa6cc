"""The clocks by which a journal's records have their times.

Each partition of the journal has the clock of its leader, and the clocks of two brokers may differ, or be set. A
shard's own time is that of its newest record, and never goes back: if a leader's clock was a day ahead for a moment,
the shard has the time of that moment until the real time has come there. All that a shard counts (grace periods,
lateness) is counted by its own time.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from proxy.coordinator.clock import running_ms, wall_clock_ms

_LEAP_MS = 1_000
"""A shard's time that is so much later than what was known of it has leapt."""
_MOST_LEAPS = 1_000
"""Number of leaps that are remembered."""


class Deadline(int):
    """A time in ms by this process's clock, and how many leaps were known when it was computed."""

    leaps: int

    def __new__(cls, time_ms: int, leaps: int) -> Deadline:
        """Return such a time."""
        self = super().__new__(cls, time_ms)
        self.leaps = leaps
        return self

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        """Return what `__new__` gets from a pickle: a task takes its deadline along, and comes back with it."""
        return int(self), self.leaps

    def earlier(self, other: Deadline) -> Deadline:
        """Return a deadline that is kept if both are: by the fewer leaps too."""
        return Deadline(min(int(self), int(other)), min(self.leaps, other.leaps))


class _Leap(NamedTuple):
    """Keeps what was known of a shard before its time leapt."""

    shard: int
    ahead_ms: int
    reached_ms: int


class JournalTime:
    """The times of the partitions, as this process knows them from its own records."""

    def __init__(self) -> None:
        self._ahead_ms: dict[int, int] = {}
        """Difference of each leader's clock to `running_ms`, by partition."""
        self._reached_ms: Counter[int] = Counter()
        """Time that each shard is known to have reached."""
        self._own_ms = wall_clock_ms() - running_ms()
        """Difference of this machine's clock, as it was once, to `running_ms`."""
        self._leaps: list[_Leap] = []
        self._forgotten = 0
        """Number of leaps before these."""

    def note_appended(self, partition: int, time_ms: int) -> None:
        """Note the time of a record that was appended just now."""
        self.note_reached(partition, time_ms)
        self._ahead_ms[partition] = time_ms - running_ms()

    def note_reached(self, shard: int, time_ms: int) -> None:
        """Note a shard's own time."""
        known_ms = max(self._ahead(shard) + running_ms(), self._reached_ms[shard])
        if time_ms > known_ms + _LEAP_MS:
            self._leaps.append(_Leap(shard, self._ahead(shard), self._reached_ms[shard]))
            self._forgotten += len(self._leaps[:-_MOST_LEAPS])
            del self._leaps[:-_MOST_LEAPS]
        self._reached_ms[shard] = max(self._reached_ms[shard], time_ms)

    def now_ms(self) -> int | None:
        """Return the time in ms since 1970 by the slowest of the known clocks; None if none is known yet."""
        return min(self._ahead_ms.values()) + running_ms() if self._ahead_ms else None

    def own_ms(self) -> int:
        """Return the time in ms by which deadlines are computed: it goes on evenly, whichever clocks become known."""
        return self._own_ms + running_ms()

    def deadline_ms(self, within_ms: int) -> Deadline:
        """Return a deadline so much later than now."""
        return Deadline(self.own_ms() + within_ms, self._forgotten + len(self._leaps))

    def of_shard(self, shard: int, deadline_ms: int) -> int:
        """Return the time that a shard will have when `own_ms` will be `deadline_ms`.

        It is not too late: what is known of the leader's clock is as much behind as the answer took to come. Of a shard
        to which this process has appended nothing, the slowest of the other clocks is taken. A deadline does not leap
        with a shard's time, as what it protects does: grace periods, and how long answers are kept.
        """
        left_ms = deadline_ms - self._own_ms
        time_ms = max(left_ms + self._ahead(shard), self._reached_ms[shard])
        if not isinstance(deadline_ms, Deadline):
            return time_ms
        if deadline_ms.leaps < self._forgotten:
            return 1  # nobody knows
        for leap in self._leaps[deadline_ms.leaps - self._forgotten :]:
            if leap.shard == shard:
                return min(time_ms, max(left_ms + leap.ahead_ms, leap.reached_ms))
        return time_ms

    def _ahead(self, shard: int) -> int:
        return self._ahead_ms.get(shard, min(self._ahead_ms.values(), default=self._own_ms))
