"""Reads diskless partitions for a Fetch: coordinates, then the rack-local caches, under Kafka's byte limits.

Partitions are read in the request's order. The first batch of the whole answer is exempt from the limits. Every other
batch must fit in what is left of the request's limit and of its partition's (KIP-74).

Blocks that are not in memory are read for all partitions at the same time, as many as the answer and the caches can
hold, for a limited time. A partition's records then end at the first row that is missing, as long as the answer has
something. The client requests the rest, and rotates its partitions, so that each is the first at some time. What the
next answers are likely to need is read ahead, as otherwise each of them would wait for its own GETs.

A reader of committed records (`read_committed`) gets whole batches before the last stable offset. It gets records of
aborted transactions too, with the list of these transactions, as from a broker, and leaves the records out itself.

If a segment is gone, its coordinates are old: the coordinator is asked for the new ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from proxy.coordinator.interface import FindRequest, LogAnswer, Row
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.diskless.coordinates import Coordinates
from proxy.diskless.kept_blocks import PatchedRun
from proxy.diskless.row_reader import HeldRows, RowReader
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.records.batches import empty_batch
from proxy.storage.interface import ObjectMissing, StorageError
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.primitives import Buffer

_UNKNOWN_OFFSET = -1
_LEADER_EPOCH = 0
_MAX_PARTITIONS_AHEAD = 8
_MAX_LOOKS = 2
"""More at the coordinates of a partition in one read, as long as each names another segment that is gone."""


class ReadRequest(NamedTuple):
    """One partition to read."""

    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    committed: bool = False
    """True if the reader gets nothing from the last stable offset on (`read_committed`)."""


class PartitionRead(NamedTuple):
    """Result of a read: whole batches, the first of which holds the requested offset."""

    error_code: int
    records: list[Buffer]
    size_bytes: int
    log_start_offset: int = _UNKNOWN_OFFSET
    high_watermark: int = _UNKNOWN_OFFSET
    more: bool = False
    """Whether more lies below the end for this reader, which limits kept back: those on bytes or on rows, or the
    caches'."""
    last_stable_offset: int = _UNKNOWN_OFFSET
    aborted: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that may have records in `records`, in the order of their last offsets."""


class DisklessReader:
    """Reads from the log that the coordinator orders and object storage holds."""

    def __init__(
        self,
        coordinates: Coordinates,
        rows: RowReader,
        throttled_log: ThrottledLog,
        *,
        shortest_wait_s: float = 0.2,
        read_ahead_bytes: int = 0,
    ) -> None:
        """`shortest_wait_s`: for object storage, whatever a reader says. `read_ahead_bytes`: of each answer."""
        self.coordinates = coordinates
        self._rows = rows
        self._throttled_log = throttled_log
        self.shortest_wait_s = shortest_wait_s
        self.read_ahead_bytes = read_ahead_bytes

    async def read(
        self,
        requests: Sequence[ReadRequest],
        *,
        max_bytes: int,
        trust_ends: bool,
        first_exempt: bool,
        wait_s: float = 0.0,
    ) -> list[PartitionRead]:
        """Read once, without waiting for records to come. Errors are per partition.

        `trust_ends`: see `Coordinates.locate`. `first_exempt`: the first batch comes whatever its size. `wait_s`: how
        long object storage is waited for; for records of any partition, as long as it takes.
        """
        wanted = [
            FindRequest(request.topic_id, request.partition, request.offset, min(request.max_bytes, max_bytes))
            for request in requests
        ]
        committed = any(request.committed for request in requests)
        located = await self.coordinates.locate(wanted, trust_ends=trust_ends, committed=committed)
        answers = [_readable(request, answer) for request, answer in zip(requests, located, strict=True)]
        rows = self._choose(requests, answers, max_bytes, first_exempt)
        if max_bytes:
            rows.want_next(self._next_rows(requests, answers))
        await rows.load(max(wait_s, self.shortest_wait_s))
        if rows.had_to_read and not any(map(_is_told, requests, answers)):
            await rows.any_of([answer.rows[0] for answer in answers if answer.rows])
        reads, left = [], max_bytes
        for request, answer in zip(requests, answers, strict=True):
            limit = min(request.max_bytes, left)
            try:
                read = self._partition(request, answer, rows, limit, first_exempt)
            except _RowGone as gone:
                read = await self._elsewhere(request, gone.row, limit, first_exempt)
            if read.size_bytes:
                first_exempt = False
                left = max(left - read.size_bytes, 0)
            reads.append(read)
        return reads

    def _choose(
        self, requests: Sequence[ReadRequest], answers: Sequence[LogAnswer], max_bytes: int, first_exempt: bool
    ) -> HeldRows:
        """Return the rows that the answer will consist of, as far as their lengths show."""
        chosen = HeldRows(self._rows)
        left = max_bytes
        for request, answer in zip(requests, answers, strict=True):
            limit, size = min(request.max_bytes, left), 0
            for row in answer.rows:
                if (size >= limit and not first_exempt) or not chosen.want(row):
                    break
                size += row.length
                first_exempt = False
            left -= min(size, limit)
        return chosen

    def _next_rows(self, requests: Sequence[ReadRequest], answers: Sequence[LogAnswer]) -> Iterator[Row]:
        """Return what the next answers will consist of if the reader goes on, with the same share for each partition.

        A GET takes long, and each answer would wait for its own. A reader of many partitions that is far behind in
        them has many GETs under way at a time as it is.
        """
        going_on = [
            (request, answer.rows[-1].last_offset + 1)
            for request, answer in zip(requests, answers, strict=True)
            if answer.rows and answer.rows[-1].last_offset + 1 < _end(request, answer)
        ]
        share = self.read_ahead_bytes // max(1, len(going_on))
        if not share or len(going_on) > _MAX_PARTITIONS_AHEAD:
            return
        following = self.coordinates.following_rows
        each = [following(request.topic_id, request.partition, offset, share) for request, offset in going_on]
        for some in zip_longest(*each):
            yield from (row for row in some if row is not None)

    async def _elsewhere(self, request: ReadRequest, gone: Row, limit: int, first_exempt: bool) -> PartitionRead:
        """Ask the coordinator again after cached coordinates turned out to be old; return its answer, or
        KAFKA_STORAGE_ERROR."""
        wanted = FindRequest(request.topic_id, request.partition, request.offset, limit)
        for _ in range(_MAX_LOOKS):
            self.coordinates.forget(request.topic_id)
            (located,) = await self.coordinates.locate([wanted], trust_ends=False, committed=request.committed)
            answer = _readable(request, located)
            if answer.rows[:1] == (gone,):
                self._throttled_log.error(
                    "segment_missing", segment=gone.segment.hex(), partition=request.partition, offset=request.offset
                )
                break
            held = HeldRows(self._rows)
            await held.any_of(answer.rows[:1])
            try:
                return self._partition(request, answer, held, limit, first_exempt)
            except _RowGone as error:
                gone = error.row
        return PartitionRead(KAFKA_STORAGE_ERROR, [], 0)

    def _partition(
        self, request: ReadRequest, answer: LogAnswer, rows: HeldRows, limit: int, first_exempt: bool
    ) -> PartitionRead:
        """Return the rows up to the first one whose segment is gone. Raises _RowGone if that is the very first row."""
        if answer.error_code != NONE:
            return PartitionRead(answer.error_code, [], 0, answer.log_start_offset, answer.high_watermark)
        end = _end(request, answer)
        if not answer.rows and request.offset < end:
            return _gap(request, answer, limit, first_exempt)
        records: list[Buffer] = []
        size, error_code = 0, NONE
        # The coordinator returns no more rows than the limit takes, and not very many.
        more = bool(answer.rows) and answer.rows[-1].last_offset + 1 < end
        for row in answer.rows:
            if size >= limit and not (first_exempt and not size):
                more = True
                break
            try:
                run = rows.get(row)
            except StorageError as error:
                self._throttled_log.warning("segment_unreadable", segment=row.segment.hex(), reason=str(error))
                if isinstance(error, ObjectMissing):
                    if not size:
                        raise _RowGone(row) from error
                    self.coordinates.forget(request.topic_id)
                error_code, more = NONE if size else KAFKA_STORAGE_ERROR, False
                break
            if run is None:
                # `load` has read all that there was time and room for.
                more = size > 0
                break
            run = _until(run, end) if row.last_offset >= end else run
            begin, stop = _batches_that_fit(run, request.offset, limit - size, first_exempt and not size)
            if stop > begin:
                records.append(run.data[begin:stop])
                size += stop - begin
            if stop < len(run.data):
                more = True
                break
        bounds = (answer.log_start_offset, answer.high_watermark)
        aborted = _aborted(request, answer, end) if size else ()
        return PartitionRead(error_code, records, size, *bounds, more, answer.last_stable_offset, aborted)


def _is_told(request: ReadRequest, answer: LogAnswer) -> bool:
    """Return whether the answer has something although no object is read, so that other partitions need not wait."""
    is_gap = not answer.rows and request.offset < _end(request, answer)
    return answer.error_code == KAFKA_STORAGE_ERROR or (answer.error_code == NONE and is_gap)


def _end(request: ReadRequest, answer: LogAnswer) -> int:
    """Return the end of the log for this reader."""
    return answer.last_stable_offset if request.committed else answer.high_watermark


def _readable(request: ReadRequest, answer: LogAnswer) -> LogAnswer:
    """Return an answer without the rows that the reader gets nothing of."""
    if not request.committed or answer.last_stable_offset >= answer.high_watermark:
        return answer
    end = answer.last_stable_offset
    count = bisect_left(answer.rows, end, key=attrgetter("base_offset")) if request.offset < end else 0
    return answer._replace(rows=answer.rows[:count])


def _until(run: PatchedRun, end: int) -> PatchedRun:
    """Return the batches that end before an offset."""
    batches = tuple(batch for batch in run.batches if batch.last_offset < end)
    size = batches[-1].position + batches[-1].length if batches else 0
    return PatchedRun(run.data[:size], batches)


def _aborted(request: ReadRequest, answer: LogAnswer, end: int) -> tuple[AbortedTransaction, ...]:
    """Return the transactions that concern the reader (`UnifiedLog.collectAbortedTransactions`)."""
    if not request.committed:
        return ()
    return tuple(one for one in answer.aborted if one.last_offset >= request.offset and one.first_offset < end)


def _gap(request: ReadRequest, answer: LogAnswer, limit: int, first_exempt: bool) -> PartitionRead:
    """Return a batch that leads a reader over offsets at the log's end without records, which an accepted loss leaves.

    A reader that got nothing would stay at its offset until the next write, and never reach the end that it sees.
    """
    batch = empty_batch(request.offset, _end(request, answer), _LEADER_EPOCH)
    records: list[Buffer] = [batch] if first_exempt or len(batch) <= limit else []
    size = sum(map(len, records))
    bounds = (answer.log_start_offset, answer.high_watermark)
    return PartitionRead(NONE, records, size, *bounds, last_stable_offset=answer.last_stable_offset)


class _RowGone(Exception):
    """The object is not there any more that a row names."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.row = row


def _batches_that_fit(run: PatchedRun, offset: int, limit: int, first_exempt: bool) -> tuple[int, int]:
    """Return the bytes of a run from the batch that holds `offset` on, as many whole batches as fit."""
    data, batches = run
    if not batches:
        return 0, 0
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
