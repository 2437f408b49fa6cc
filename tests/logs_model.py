"""The logs of the coordinator in memory, and what they know of producers; `coordinator_model.py` has the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.coordinator.interface import Row
from proxy.coordinator.interface_transactions import AbortedTransaction, ShadowPosition

LARGEST = 2**53 - 1


@dataclass
class Producer:
    epoch: int
    last_append_ms: int
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Sequence, count, base offset, timestamp of each cached batch."""


@dataclass
class Transaction:
    """The newest transaction of a producer, as a log knows it; -1 for what it does not know."""

    epoch: int = -1
    first_offset: int = -1
    """-1 if it is not open."""
    markers_from: int = -1
    marker: int = -1
    """Offset of the producer's last marker in the shadow's log."""
    coordinator_epoch: int = -1
    changed_ms: int = 0


@dataclass
class PartitionLog:
    rows: list[Row] = field(default_factory=list)
    start: int = 0
    end: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)
    compacted: int = 0
    newest_ms: int = -LARGEST
    transactions: dict[int, Transaction] = field(default_factory=dict)
    """Newest transaction of each producer."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    shadow: ShadowPosition = field(default_factory=lambda: ShadowPosition(-1, 0))

    def unstable(self) -> list[int]:
        """Return the first offsets of the open transactions."""
        return [one.first_offset for one in self.transactions.values() if one.first_offset >= 0]

    @property
    def stable(self) -> int:
        """Last stable offset."""
        return max(min(self.unstable(), default=self.end), self.start)

    def has_open(self, producer_id: int) -> bool:
        known = self.transactions.get(producer_id)
        return known is not None and known.first_offset >= 0
