"""The lease that a proxy has in the fleet: for that long, creators of diskless topics wait for its acknowledgement."""

from __future__ import annotations

from proxy.coordinator.clock import running_ms


class FleetLease:
    """Extended by heartbeats. While it runs, this proxy has heard of every diskless topic that a broker knows."""

    def __init__(self) -> None:
        self._until_ms = 0
        self.number = 0
        """Number of the newest lease: a lease that begins after the last one ran out has another number."""

    def runs(self) -> bool:
        """Return True if creators of diskless topics still wait for this proxy."""
        return running_ms() < self._until_ms

    def left_ms(self) -> int:
        """Return how long the lease still runs; 0 if it has run out."""
        return max(self._until_ms - running_ms(), 0)

    def extend(self, until_ms: int, *, begins: bool) -> None:
        """Set the end, by `running_ms`. `begins`: the last lease had run out."""
        self.number += begins
        self._until_ms = until_ms

    def end(self) -> None:
        """End the lease now."""
        self._until_ms = 0
