"""Counts of what the markers have done, for the metrics."""

from __future__ import annotations

from proxy.telemetry.stats import LATENCY_BOUNDS_S, Histogram


class MarkerStats:
    """Counts of one process."""

    def __init__(self) -> None:
        self.committed = 0
        """Transactions, each in one log, that this process has ended by a marker."""
        self.aborted = 0
        self.lost = 0
        """Offsets that were deleted from shadows before they were read."""
        self.reconciled = 0
        """Transactions that were ended as the brokers report, because their markers are lost."""
        self.lag_seconds = Histogram(LATENCY_BOUNDS_S)
        """Time from a marker's append to its application."""

    def count_ended(self, ended: int, aborted: int) -> None:
        """Count transactions that have ended, and how many of them were aborted."""
        self.committed += ended - aborted
        self.aborted += aborted
