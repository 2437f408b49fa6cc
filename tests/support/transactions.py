"""Transactions in diskless logs without brokers: their markers as the coordinator has them, and logs that have some."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.coordinator.interface_transactions import Marker, MarkersRead
from proxy.diskless.wal.segment import SegmentBuilder, segment_key
from proxy.inspection.stores import Stores
from proxy.records.batches import read_header
from tests.support.keyed import Keyed

MARKER_MS = 1_700_000_009_000


def marker_row(
    offset: int, *, producer_id: int = 7, committed: bool = True, append_time_ms: int = 9, log_append_time: bool = False
) -> Row:
    """Build the row of a marker of epoch 3, whose coordinator has epoch 5."""
    contents = struct.pack(">qhi?x", producer_id, 3, 5, committed)
    return Row(offset, offset, contents, 0, 0, MARKER_MS, append_time_ms, log_append_time)


def transactional_batch(
    records: Sequence[Keyed], producer_id: int, sequence: int, *, timestamp_ms: int, codec: int = 0, epoch: int = 0
) -> bytearray:
    """Build a batch of a transaction; producer ID -1 for a plain batch."""
    is_transactional = int(producer_id >= 0)
    producer = (producer_id, epoch, sequence) if is_transactional else (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(2, codec, is_transactional, *producer, 1 << 26)
    for place, record in enumerate(records):
        assert builder.append(place, timestamp_ms + place, record.key, record.value, list(record.headers)) is not None
    return bytearray(builder.build())


class TransactionalLog:
    """Writes to one partition of a topic: batches, each in its segment, and markers."""

    def __init__(self, stores: Stores, topic: DisklessTopic, partition: int = 0) -> None:
        self._stores = stores
        self._topic = topic
        self._partition = partition
        self._sequences: dict[int, int] = {}
        self._shadow_end = 0

    async def write(
        self, records: Sequence[Keyed], producer_id: int = -1, *, timestamp_ms: int = MARKER_MS - 1_000, codec: int = 0
    ) -> None:
        """Write a batch; of the producer's transaction, which it opens, if there is a producer."""
        sequence = self._sequences.get(producer_id, 0)
        batch = transactional_batch(records, producer_id, sequence, timestamp_ms=timestamp_ms, codec=codec)
        self._sequences[producer_id] = sequence + len(records)
        await self.append([batch])

    async def append(self, batches: Sequence[bytes | bytearray]) -> None:
        """Append batches as they are, in one segment. Those of transactions must have a producer."""
        builder = SegmentBuilder()
        for batch in batches:
            builder.add(self._topic.topic_id, self._partition, memoryview(batch), read_header(batch))
        built = builder.build()
        await self._stores.storage.upload(segment_key(built.segment), built.data, len(built.data))
        kinds = [read_header(batch).is_transactional for batch in batches]
        (run,) = built.runs
        run = run._replace(
            batches=tuple(
                batch._replace(transaction_version=2, markers_from=self._shadow_end) if kind else batch
                for batch, kind in zip(run.batches, kinds, strict=True)
            )
        )
        (answer,) = await self._stores.coordinator.commit(built.segment, [run])
        assert answer.error_code == 0, answer
        assert all(batch.error_code == 0 for batch in answer.batches), answer

    async def end(
        self, producer_id: int, *, committed: bool, timestamp_ms: int = MARKER_MS, epoch: int = 0, coordinator: int = 5
    ) -> None:
        """End the transaction of a producer by a marker."""
        at = self._shadow_end
        marker = Marker(at, producer_id, epoch, coordinator, committed, timestamp_ms)
        part = MarkersRead(self._topic.topic_id, self._partition, at, at + 1, 0, (marker,))
        (applied,) = await self._stores.coordinator.transactions.apply_markers([part])
        assert applied.ended == 1, applied
        self._shadow_end += 1
