"""The clocks by which a journal's records have their times.

Each partition of the journal has the clock of its leader, and the clocks of two brokers may differ, or be set. A
shard's own time is that of its newest record, and never goes back: if a leader's clock was a day ahead for a moment,
the shard has the time of that moment until the real time has come there. All that a shard counts (grace periods,
lateness) is counted by its own time.
"""

from __future__ import annotations

from collections import Counter

from proxy.coordinator.clock import running_ms
from proxy.process.clock import wall_clock_ms


class JournalTime:
    """The times of the partitions, as this process knows them from its own records."""

    def __init__(self) -> None:
        self._ahead_ms: dict[int, int] = {}
        """Difference of each leader's clock to `running_ms`, by partition."""
        self._reached_ms: Counter[int] = Counter()
        """Time that each shard is known to have reached."""
        self._own_ms = wall_clock_ms() - running_ms()
        """Difference of this machine's clock, as it was once, to `running_ms`."""

    def note_appended(self, partition: int, time_ms: int) -> None:
        """Note the time of a record that was appended just now."""
        self._ahead_ms[partition] = time_ms - running_ms()
        self.note_reached(partition, time_ms)

    def note_reached(self, shard: int, time_ms: int) -> None:
        """Note a shard's own time."""
        self._reached_ms[shard] = max(self._reached_ms[shard], time_ms)

    def now_ms(self) -> int | None:
        """Return the time in ms since 1970 by the slowest of the known clocks; None if none is known yet."""
        return min(self._ahead_ms.values()) + running_ms() if self._ahead_ms else None

    def own_ms(self) -> int:
        """Return the time in ms by which deadlines are computed: it goes on evenly, whichever clocks become known."""
        return self._own_ms + running_ms()

    def of_shard(self, shard: int, time_ms: int) -> int:
        """Return the time that a shard will have when `own_ms` will be `time_ms`.

        It is not too late: what is known of the leader's clock is as much behind as the answer took to come. Of a shard
        to which this process has appended nothing, the slowest of the other clocks is taken.
        """
        ahead_ms = self._ahead_ms.get(shard, min(self._ahead_ms.values(), default=self._own_ms))
        return max(time_ms - self._own_ms + ahead_ms, self._reached_ms[shard])
