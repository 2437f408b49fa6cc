"""Merge and compact by hand: replace rows of a real coordinator by one row of a new object."""

from __future__ import annotations

from collections.abc import Callable

from proxy.coordinator.interface import Coordinator, FindRequest, Row
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.diskless.row_reader import marker_run
from proxy.diskless.wal.segment import MergedBuilder, segment_key
from proxy.records.batches import BatchBounds, check_offsets, patch_offsets, read_header
from proxy.storage import ObjectStorage


def keep_all(_: BatchBounds) -> bool:
    """Keep every batch, as a merge does."""
    return True


async def rows_there(coordinator: Coordinator, topic_id: bytes, partition: int) -> tuple[Row, ...]:
    """Return the first rows of a log, a few hundred at most."""
    (log,) = await coordinator.describe(topic_id, [partition])
    assert log is not None
    (answer,) = await coordinator.find([FindRequest(topic_id, partition, log.log_start_offset, 1 << 40)])
    return answer.rows


async def merge_rows(
    coordinator: Coordinator,
    storage: ObjectStorage,
    topic_id: bytes,
    partition: int,
    old: tuple[Row, ...],
    *,
    keep: Callable[[BatchBounds], bool] = keep_all,
) -> Row | None:
    """Replace neighbouring rows by one row with the batches to keep; return the new row, or None if nothing was
    kept."""
    kept: list[bytes] = []
    last_offset = -1
    for row in old:
        key, end = segment_key(row.segment), row.position + row.length
        if row.is_marker:
            run = bytearray(marker_run(row).data)
        else:
            run = bytearray(await storage.fetch(key, row.position, end))
        if row.offsets_in_place or row.is_marker:
            batches = check_offsets(run, row.base_offset, row.last_offset)
        else:
            batches = patch_offsets(run, row.base_offset, 0, row.append_time_ms if row.log_append_time else None)
        for batch in batches:
            if keep(batch):
                kept.append(bytes(run[batch.position : batch.position + batch.length]))
                last_offset = batch.last_offset
    new = None
    if kept:
        merged = MergedBuilder()
        new = merged.add(
            kept,
            base_offset=old[0].base_offset,
            last_offset=last_offset,
            max_timestamp_ms=max(read_header(batch).max_timestamp_ms for batch in kept),
            append_time_ms=max(row.append_time_ms for row in old),
        )
        await storage.upload(segment_key(merged.segment), merged.data, merged.size_bytes)
    assert await coordinator.rows.replace([Swap(topic_id, partition, old, new)]) == [SwapAnswer.REPLACED]
    return new
