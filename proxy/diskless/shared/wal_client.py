"""The WAL of the storage process, as a worker uses it.

A batch is copied into shared memory, from which the storage process builds its segments. If the link is lost, nobody
knows what became of the batches under way: their producers get REQUEST_TIMED_OUT, which is retriable, and an idempotent
producer's retry is recognised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.diskless.shared.link import StorageLink
from proxy.diskless.shared.messages import (
    MOST_BATCHES,
    Append,
    Drain,
    NewSlab,
    ProducedBatch,
    Refused,
    Settled,
    SlabGone,
)
from proxy.diskless.shared.slabs import Slabs
from proxy.diskless.wal.failures import FailedBatches
from proxy.diskless.wal.outcome import Outcome, Settle, report
from proxy.process.shared_memory import SharedMemory
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from proxy.records.batches import BatchHeader

log = structlog.get_logger()

Heard = Callable[[bytes, int, int, int], None]
"""Takes topic ID, partition, log start and high watermark of a commit's answer."""


class _Waiting(NamedTuple):
    settle: Settle
    slab: int
    topic_id: bytes
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class RemoteWal:
    """`Wal` by way of the storage process. `heard` is called before the callback of a batch that was committed."""

    def __init__(self, link: StorageLink, heard: Heard) -> None:
        self._link = link
        self._heard = heard
        self._failures = FailedBatches()
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = 0
        self._to_send: list[ProducedBatch] = []
        self._slabs = self._new_slabs()
        self._empty = asyncio.Event()
        self._empty.set()
        link.take(Settled, lambda message, _: self._settled(message))
        link.on_lost.append(self._lost)

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
        """See `Wal`."""
        producer = header.producer_id, header.producer_epoch, header.base_sequence
        if self._failures.comes_too_early(topic_id, partition, *producer):
            report([(settle, Outcome(KAFKA_STORAGE_ERROR))])
            return
        place = self._place(batch)
        if place is None:
            self._failures.note(topic_id, partition, *producer)
            report([(settle, Outcome(KAFKA_STORAGE_ERROR))])
            return
        self._numbers += 1
        self._empty.clear()
        self._waiting[self._numbers] = _Waiting(settle, place[0], topic_id, partition, *producer)
        if not self._to_send:
            asyncio.get_running_loop().call_soon(self._send)
        self._to_send.append(
            ProducedBatch(self._numbers, topic_id, partition, *place, header, log_append_time, patience_s, markers_from)
        )
        if len(self._to_send) == MOST_BATCHES:
            self._send()

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        """See `Wal`."""
        self._send()
        self._link.send(Refused(topic_id, partition, producer_id))

    def not_stored(self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        """See `Wal`."""
        self._failures.note(topic_id, partition, producer_id, epoch, base_sequence)

    async def drain(self) -> None:
        """See `Wal`."""
        self._send()
        self._link.send(Drain())
        await self._empty.wait()

    async def close(self) -> None:
        """See `Wal`. What the storage process has may be committed nevertheless."""
        self._fail_all()
        self._slabs.close()

    def _place(self, batch: memoryview) -> tuple[int, int] | None:
        """Return the slab and offset of a copy of the batch; None if the storage process can't have it."""
        if not self._link.is_open:
            return None
        try:
            return self._slabs.place(batch)
        except OSError as error:
            log.error("batch_not_placed", reason=str(error), remedy="give the proxy more memory, or fewer workers")
            return None

    def _new_slabs(self) -> Slabs:
        def added(number: int, memory: SharedMemory) -> None:
            self._link.send(NewSlab(number, memory.size_bytes), [memory.descriptor])

        return Slabs(added, lambda number: self._link.send(SlabGone(number)))

    def _send(self) -> None:
        batches, self._to_send = self._to_send, []
        if batches:
            self._link.send(Append(tuple(batches)))

    def _settled(self, message: Settled) -> None:
        reports: list[tuple[Settle, Outcome]] = []
        for number, outcome in message.outcomes:
            waiting = self._waiting.pop(number)
            self._slabs.settled(waiting.slab)
            if outcome.high_watermark >= 0:
                self._heard(waiting.topic_id, waiting.partition, outcome.log_start_offset, outcome.high_watermark)
            reports.append((waiting.settle, outcome))
        if not self._waiting:
            self._empty.set()
        report(reports)

    def _lost(self) -> None:
        # The storage process may still read what is in the slabs, so they are not used again.
        self._slabs.close()
        self._slabs = self._new_slabs()
        if self._waiting:
            log.warning(
                "storage_process_lost",
                batches=len(self._waiting),
                effect="producers get a retriable error",
                remedy="none; it is started again",
            )
        self._fail_all()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._to_send.clear()
        self._empty.set()
        for one in waiting.values():
            self._failures.note(*one[2:])
        report([(one.settle, Outcome(REQUEST_TIMED_OUT)) for one in waiting.values()])
