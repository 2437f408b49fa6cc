"""The clocks by which a journal's records have their times.

Each partition of the journal has the clock of its leader, and the clocks of two brokers may differ, or be set. A
shard's own time is that of its newest record, and never goes back: if a leader's clock was a day ahead for a moment,
the shard has the time of that moment until the real time has come there. All that a shard counts (grace periods,
lateness) is counted by its own time.
"""

from __future__ import annotations

from collections import Counter

from proxy.coordinator.clock import running_ms


class JournalTime:
    """The times of the partitions, as this process knows them from its own records."""

    def __init__(self) -> None:
        self._ahead_ms: dict[int, int] = {}
        """Difference of each leader's clock to `running_ms`, by partition."""
        self._reached_ms: Counter[int] = Counter()
        """Time that each shard is known to have reached."""

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

    def of_shard(self, shard: int, time_ms: int) -> int:
        """Return the time that a shard will have when `now_ms` will be `time_ms`."""
        if not self._ahead_ms:
            return time_ms
        slowest_ms = min(self._ahead_ms.values())
        return max(time_ms - slowest_ms + self._ahead_ms.get(shard, slowest_ms), self._reached_ms[shard])
