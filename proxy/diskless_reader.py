"""Reads diskless partitions for a Fetch: coordinates, then the rack-local caches, under Kafka's byte limits.

Partitions are read in the request's order; the first batch of the whole answer is exempt from the limits, every other
one must fit what is left of the request's and of its partition's (KIP-74).

A segment that is gone tells that its coordinates are old: the coordinator is asked where the records are now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from proxy.cache import PatchedRun
from proxy.coordinates import Coordinates
from proxy.coordinator.interface import FindRequest, LogAnswer, Row
from proxy.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.row_reader import RowReader
from proxy.storage.interface import ObjectMissing, StorageError
from proxy.wire.primitives import Buffer

log = structlog.get_logger()

_UNKNOWN_OFFSET = -1
_MAX_LOOKS = 2
"""More at the coordinates of a partition in one read, as long as each names another segment that is gone."""


class ReadRequest(NamedTuple):
    """One partition to read."""

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int


class PartitionRead(NamedTuple):
    """What was read: whole batches, the first of which holds the offset asked for."""

    error_code: int
    records: list[Buffer]
    size_bytes: int
    log_start_offset: int = _UNKNOWN_OFFSET
    high_watermark: int = _UNKNOWN_OFFSET


class DisklessReader:
    """Reads from the log that the coordinator orders and object storage holds."""

    def __init__(self, coordinates: Coordinates, rows: RowReader) -> None:
        self.coordinates = coordinates
        self._rows = rows

    async def read(
        self, requests: Sequence[ReadRequest], *, max_bytes: int, trust_ends: bool, first_exempt: bool
    ) -> list[PartitionRead]:
        """Read once, without waiting for more. Errors are per partition.

        `trust_ends`: see `Coordinates.locate`. `first_exempt`: the first batch comes whatever its size.
        """
        wanted = [
            FindRequest(request.topic_id, request.partition, request.offset, min(request.max_bytes, max_bytes))
            for request in requests
        ]
        answers = await self.coordinates.locate(wanted, trust_ends=trust_ends)
        await self._load(answers, max_bytes)
        reads, left = [], max_bytes
        for request, answer in zip(requests, answers, strict=True):
            limit = min(request.max_bytes, left)
            try:
                read = await self._partition(request, answer, limit, first_exempt)
            except _RowGone as gone:
                read = await self._elsewhere(request, gone.row, limit, first_exempt)
            if read.size_bytes:
                first_exempt = False
                left = max(left - read.size_bytes, 0)
            reads.append(read)
        return reads

    async def _load(self, answers: Sequence[LogAnswer], max_bytes: int) -> None:
        """Bring what the answer will need into memory at the same time, rather than partition by partition."""
        missing: list[Row] = []
        left = max_bytes
        for answer in answers:
            for row in answer.rows:
                if left <= 0:
                    break
                left -= row.length
                if self._rows.cached(row) is None:
                    missing.append(row)
        if len(missing) > 1:
            await asyncio.gather(*map(self._rows.run, missing), return_exceptions=True)

    async def _elsewhere(self, request: ReadRequest, gone: Row, limit: int, first_exempt: bool) -> PartitionRead:
        """The coordinates that were remembered are old: what the coordinator says now, or KAFKA_STORAGE_ERROR."""
        wanted = FindRequest(request.topic_id, request.partition, request.offset, limit)
        for _ in range(_MAX_LOOKS):
            self.coordinates.forget(request.topic_id)
            (answer,) = await self.coordinates.locate([wanted], trust_ends=False)
            if answer.rows[:1] == (gone,):
                log.error(
                    "segment_missing", segment=gone.segment.hex(), partition=request.partition, offset=request.offset
                )
                break
            try:
                return await self._partition(request, answer, limit, first_exempt)
            except _RowGone as error:
                gone = error.row
        return PartitionRead(KAFKA_STORAGE_ERROR, [], 0)

    async def _partition(
        self, request: ReadRequest, answer: LogAnswer, limit: int, first_exempt: bool
    ) -> PartitionRead:
        """Raises _RowGone where the first row's segment is gone. What lies before a later one that is gone is given."""
        if answer.error_code != NONE:
            return PartitionRead(answer.error_code, [], 0, answer.log_start_offset, answer.high_watermark)
        records: list[Buffer] = []
        size, error_code = 0, NONE
        for row in answer.rows:
            if size >= limit and not (first_exempt and not size):
                break
            try:
                run = self._rows.cached(row) or await self._rows.run(row)
            except StorageError as error:
                log.warning("segment_unreadable", segment=row.segment.hex(), reason=str(error))
                if isinstance(error, ObjectMissing):
                    if not size:
                        raise _RowGone(row) from error
                    self.coordinates.forget(request.topic_id)
                error_code = NONE if size else KAFKA_STORAGE_ERROR
                break
            start, end = _batches_that_fit(run, request.offset, limit - size, first_exempt and not size)
            if end == start:
                break
            records.append(run.data[start:end])
            size += end - start
            if end < len(run.data):
                break
        return PartitionRead(error_code, records, size, answer.log_start_offset, answer.high_watermark)


class _RowGone(Exception):
    """The object is not there any more that a row names."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.row = row


def _batches_that_fit(run: PatchedRun, offset: int, limit: int, first_exempt: bool) -> tuple[int, int]:
    """The bytes of a run from the batch that holds `offset` on, as many whole batches as fit."""
    data, batches = run
    if batches[0].last_offset >= offset and len(data) <= limit:
        return 0, len(data)
    start = end = -1
    for batch in batches:
        if batch.last_offset < offset:
            continue
        if start < 0:
            start = end = batch.position
        if batch.position + batch.length - start > limit and not (first_exempt and end == start):
            break
        end = batch.position + batch.length
    return (start, end) if start >= 0 else (0, 0)
