"""Transactions of the coordinator in memory; `coordinator_model.py` has the rest."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.coordinator.interface import BatchAnswer, ProposedBatch, Row
from proxy.coordinator.interface_transactions import (
    AbortedTransaction,
    EnlistAnswer,
    Enlistment,
    Marker,
    MarkersApplied,
    MarkersRead,
    OpenTransaction,
    ShadowPosition,
)
from tests.logs_model import PartitionLog, Producer, Transaction

if TYPE_CHECKING:
    from tests.coordinator_model import ModelCoordinator


class ModelTransactions:
    def __init__(self, model: ModelCoordinator) -> None:
        self._model = model

    def why_not(self, log: PartitionLog, batch: ProposedBatch) -> BatchAnswer | None:
        """Return why a batch may not be appended now; None if it may."""
        known, version = log.transactions.get(batch.producer_id), batch.transaction_version
        markers_from = batch.markers_from
        if version == 1:
            markers_from = known.markers_from if known and known.epoch == batch.producer_epoch else -1
        if known and known.first_offset >= 0:
            if version == 0:
                return BatchAnswer(48, -1, -1, False)
            if batch.producer_epoch > known.epoch or log.shadow.next_offset < markers_from:
                return BatchAnswer(19 if version == 1 else 51, -1, -1, False, early=True)
        elif version and (markers_from < 0 or (known and known.marker >= markers_from)):
            return BatchAnswer(48, -1, -1, False)
        return None

    def is_earlier(self, log: PartitionLog, batch: ProposedBatch, base_offset: int) -> bool:
        """Return whether what was appended at this offset is of a transaction before the batch's own."""
        known = log.transactions.get(batch.producer_id)
        if batch.transaction_version != 1 or known is None:
            return False
        if known.first_offset >= 0:
            return base_offset < known.first_offset
        return known.epoch == batch.producer_epoch and known.marker < known.markers_from

    def open(self, log: PartitionLog, batch: ProposedBatch) -> None:
        """Open the transaction of an accepted batch, if it is the first one."""
        if batch.transaction_version and not log.has_open(batch.producer_id):
            known = self._known(log, batch.producer_id)
            if batch.transaction_version == 2:
                known.markers_from = batch.markers_from
            known.epoch, known.first_offset, known.changed_ms = batch.producer_epoch, log.end, self._now()

    async def enlist(self, enlistments: Sequence[Enlistment]) -> list[EnlistAnswer]:
        return [self._enlist(one) for one in enlistments]

    def _enlist(self, one: Enlistment) -> EnlistAnswer:
        log = self._model.logs.get((one.topic_id, one.partition))
        if log is None:
            return EnlistAnswer.GONE
        known, producer = log.transactions.get(one.producer_id), log.producers.get(one.producer_id)
        epochs = [known.epoch] if known else []
        epochs += [producer.epoch] if producer else []
        if one.producer_epoch < max(epochs, default=-1):
            return EnlistAnswer.FENCED
        if known and known.marker >= one.markers_from:
            return EnlistAnswer.ENDED
        if log.shadow.next_offset < one.markers_from:
            return EnlistAnswer.WAIT
        if known and known.first_offset >= 0 and known.epoch < one.producer_epoch:
            return EnlistAnswer.WAIT
        known = self._known(log, one.producer_id)
        is_same = known.epoch == one.producer_epoch
        known.markers_from = max(known.markers_from, one.markers_from) if is_same else one.markers_from
        known.epoch, known.changed_ms = one.producer_epoch, self._now()
        return EnlistAnswer.ENLISTED

    async def apply_markers(self, parts: Sequence[MarkersRead]) -> list[MarkersApplied]:
        return [self._apply_part(part) for part in parts]

    def _apply_part(self, part: MarkersRead) -> MarkersApplied:
        log = self._model.logs.get((part.topic_id, part.partition))
        if log is None:
            return MarkersApplied(3, -1, 0)
        is_truncation = part.next_offset < part.from_offset
        if part.from_offset != log.shadow.next_offset or (is_truncation and part.markers):
            return MarkersApplied(0, log.shadow.next_offset, 0)
        if is_truncation:
            for known in log.transactions.values():
                known.markers_from = min(known.markers_from, part.next_offset)
                known.marker = min(known.marker, part.next_offset - 1)
        rows, aborted = len(log.rows), len(log.aborted)
        for marker in part.markers:
            self._apply(log, marker)
        log.shadow = ShadowPosition(part.leader_epoch, part.next_offset)
        if ended := len(log.rows) - rows:
            self._model.announce(part.topic_id, part.partition, log.rows[rows:], log.aborted[aborted:])
        return MarkersApplied(0, part.next_offset, ended, len(log.aborted) - aborted)

    def _apply(self, log: PartitionLog, marker: Marker) -> None:
        now, producer_id = self._now(), marker.producer_id
        producer, known = log.producers.get(producer_id), self._known(log, producer_id)
        if producer and not self._model.keeps(log, producer_id, producer):
            producer = None
        is_later = marker.producer_epoch == known.epoch and marker.offset >= known.markers_from
        if known.first_offset >= 0 and (marker.producer_epoch > known.epoch or is_later):
            self._append(log, marker)
            first, known.first_offset = known.first_offset, -1
            if not marker.committed:
                stable = min(log.unstable(), default=log.end)
                log.aborted.append(AbortedTransaction(log.end - 1, first, producer_id, stable))
        if producer is None or marker.producer_epoch > producer.epoch:
            log.producers[producer_id] = Producer(marker.producer_epoch, now)
        elif marker.producer_epoch == producer.epoch:
            producer.last_append_ms = now
        known.marker = max(known.marker, marker.offset)
        known.coordinator_epoch = max(known.coordinator_epoch, marker.coordinator_epoch)
        known.changed_ms = now

    def _append(self, log: PartitionLog, marker: Marker) -> None:
        where = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed)
        timestamp_ms = marker.timestamp_ms
        log.rows.append(
            Row(
                log.end,
                log.end,
                struct.pack(">qhi?x", *where),
                0,
                0,
                timestamp_ms,
                self._now(),
                marker.log_append_time,
            )
        )
        log.end, log.newest_ms = log.end + 1, max(log.newest_ms, timestamp_ms)

    async def positions(self, logs: Sequence[tuple[bytes, int]]) -> list[ShadowPosition | None]:
        found = [self._model.logs.get(log) for log in logs]
        return [log.shadow if log else None for log in found]

    async def followed(self, for_ms: int, shards: Sequence[int] | None = None) -> list[tuple[bytes, int]]:
        """Return logs with an open transaction: times and shards are not modelled."""
        return [key for key, log in self._model.logs.items() if log.unstable()]

    async def open_transactions(self, shards: Sequence[int] | None = None) -> list[OpenTransaction]:
        return [
            OpenTransaction(*key, producer_id, one.epoch, one.first_offset, one.markers_from, one.changed_ms)
            for key, log in self._model.logs.items()
            for producer_id, one in log.transactions.items()
            if one.first_offset >= 0
        ]

    def _known(self, log: PartitionLog, producer_id: int) -> Transaction:
        return log.transactions.setdefault(producer_id, Transaction())

    def _now(self) -> int:
        return self._model._clock()
