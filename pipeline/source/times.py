"""Offsets by time, exact to the record, as a consumer's `offsetsForTimes` returns them.

The coordinator names the row, the row's batches show the record.
"""

from __future__ import annotations

import asyncio

from pipeline.reading import RowUnreadable, coalesce, row_batches
from pipeline.source.errors import SourceError
from proxy.coordinator.interface import Coordinator, FindRequest, ListRequest, Row
from proxy.diskless.kept_blocks import PatchedRun
from proxy.diskless.record_times import first_since
from proxy.diskless.row_reader import marker_run
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.records import MAX_UNCOMPRESSED_BYTES
from proxy.protocol.errors import NONE
from proxy.storage.interface import ObjectMissing, ObjectStorage

_MAX_ATTEMPTS = 3
"""To read a row: it may be merged or deleted between being found and being read."""


async def offset_since(
    coordinator: Coordinator, storage: ObjectStorage, name: str, topic_id: bytes, partition: int, timestamp_ms: int
) -> int | None:
    """Return the first offset whose record has the timestamp or a later one; None if none has.

    `name`: of the partition, for error texts. Raises SourceError, StorageError, CoordinatorUnavailable.
    """
    from_offset = attempts = 0
    while True:
        (answer,) = await coordinator.list_offsets([ListRequest(topic_id, partition, timestamp_ms, from_offset)])
        if answer.error_code != NONE:
            raise SourceError(
                f"{name} has no offset for time {timestamp_ms}: error {answer.error_code}; was it deleted?"
            )
        if answer.offset < 0:
            return None
        (found,) = await coordinator.find([FindRequest(topic_id, partition, answer.offset, 0)])
        try:
            if not found.rows:
                raise SourceError(f"{name} changes while offset {answer.offset} is looked at; try again")
            row = found.rows[0]
            run = await _read(storage, row)
        except (ObjectMissing, RowUnreadable, SourceError) as error:
            attempts += 1
            if attempts >= _MAX_ATTEMPTS:
                raise SourceError(f"{name} can't be searched for time {timestamp_ms}: {error}") from error
            continue
        wanted_from = max(from_offset, found.log_start_offset, answer.offset)
        record = await asyncio.to_thread(
            first_since, run, timestamp_ms, wanted_from, max_batch_bytes=MAX_UNCOMPRESSED_BYTES
        )
        if record is not None:
            return record.offset
        from_offset, attempts = row.last_offset + 1, 0


async def _read(storage: ObjectStorage, row: Row) -> PatchedRun:
    if row.is_marker:
        return marker_run(row)
    (range_,) = coalesce([row])
    data = await storage.fetch(segment_key(row.segment), range_.start, range_.end)
    run, batches = row_batches(data, range_, row)
    return PatchedRun(memoryview(run), tuple(batches))
