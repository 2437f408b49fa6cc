"""The WAL as the intake uses it: the buffer of this process, or that of the storage process."""

from __future__ import annotations

from typing import Protocol

from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.diskless.wal.outcome import Settle
from proxy.records.batches import BatchHeader


class SegmentCache(Protocol):
    """Keeps segments that this process has uploaded."""

    def insert(self, segment: bytes, data: bytearray) -> None:
        """Keep a segment of our own that has just been uploaded. `data` is the cache's from now on."""


class Wal(Protocol):
    """Takes checked batches, and reports the outcome of each."""

    def append(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        settle: Settle,
        *,
        log_append_time: bool = False,
        patience_s: float = 0.0,
        markers_from: int = NO_MARKERS,
    ) -> None:
        """Take a checked batch. `settle` is called once; `batch` must not change until then.

        It is called at once if the batch follows one of its producer that failed and has not arrived again.

        `log_append_time`: the records' time is to be that of their commit. `patience_s`: how long the batch may wait
        for others, if that is longer than the interval (`diskless.append.latency.ms`). `markers_from`: see
        `ProposedBatch`.
        """

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        """Note that this proxy has rejected a batch of the producer, so that later ones need not wait for it."""

    def not_stored(self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Note that a batch of the producer failed with a retriable error before it came here."""

    async def drain(self) -> None:
        """Let no batch wait for others, and wait until everything is settled."""

    async def close(self) -> None:
        """Abandon everything that is under way."""
