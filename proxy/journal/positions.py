"""The positions that certainly exist, so that a journal that has lost records is noticed."""

from __future__ import annotations

from collections import defaultdict

from proxy.coordinator.interface_journal import JournalUnavailable


class KnownEnds:
    """The position after the last record that this process has seen or appended, by partition."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, int] = defaultdict(int)

    def of(self, partition: int) -> int:
        """Return the lowest end that the partition can have."""
        return self._ends[partition]

    def learn(self, partition: int, end: int) -> None:
        """Remember that records before this position exist or existed."""
        self._ends[partition] = max(self._ends[partition], end)


def truncated(partition: int, known_end: int, end: int, *, appended: bool) -> JournalUnavailable:
    """Return the error for a partition that ends before a position that it had reached."""
    return JournalUnavailable(
        f"partition {partition} of the journal has lost records: it reached position {known_end} and ends at {end}; "
        "stop the proxies, and find out whether the topic was created again or a broker lost its disk",
        appended=appended,
    )
