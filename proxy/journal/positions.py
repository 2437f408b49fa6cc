"""The positions that certainly exist, so that a journal that has lost records is noticed."""

from __future__ import annotations

from collections import defaultdict


class KnownEnds:
    """The position after the last record that this process has seen or appended, by partition."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, int] = defaultdict(int)
        self.losses: dict[int, str] = {}
        """Partitions that have lost records, with the text for the log. Nothing may be appended to them: a record in
        the place of a lost one would hide the loss."""

    def of(self, partition: int) -> int:
        """Return the lowest end that the partition can have."""
        return self._ends[partition]

    def learn(self, partition: int, end: int) -> None:
        """Note that records before this position exist or existed."""
        self._ends[partition] = max(self._ends[partition], end)

    def lost(self, partition: int, known_end: int, end: int) -> str:
        """Note that a partition ends before a position that it had reached, and return the text of the error."""
        text = (
            f"partition {partition} of the journal has lost records: it reached position {known_end} and ends at "
            f"{end}; stop the proxies, and find out whether the topic was created again or a broker lost its disk"
        )
        return self.losses.setdefault(partition, text)
