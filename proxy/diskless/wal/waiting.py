"""The batches of one segment that is filled, uploaded or committed, and the callbacks that wait for their outcomes."""

from __future__ import annotations

import asyncio

from proxy.diskless.wal.outcome import Settle
from proxy.diskless.wal.segment import SegmentBuilder
from proxy.records.batches import BatchHeader

Partition = tuple[bytes, int]
"""Topic ID and index."""


class WaitingSegment:
    """Batches that travel together; `waiting` holds the callbacks, in the order of each partition's run."""

    __slots__ = ("builder", "first", "not_after_ms", "number", "task", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.builder = SegmentBuilder()
        self.waiting: dict[Partition, list[Settle]] = {}
        self.first: dict[Partition, dict[tuple[int, int], int]] = {}
        """First sequence of each idempotent producer (ID and epoch), by partition."""
        self.task: asyncio.Task[None] | None = None
        self.not_after_ms = 0
        """Time by the coordinator's clock after which its object may count as one that nobody will commit."""

    def add(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        settle: Settle,
        *,
        log_append_time: bool,
        markers_from: int,
    ) -> int:
        """Add a batch. Return the number of batches of its partition."""
        self.builder.add(*partition, batch, header, log_append_time=log_append_time, markers_from=markers_from)
        run = self.waiting.setdefault(partition, [])
        run.append(settle)
        if header.producer_id >= 0:
            producer = header.producer_id, header.producer_epoch
            self.first.setdefault(partition, {}).setdefault(producer, header.base_sequence)
        return len(run)
