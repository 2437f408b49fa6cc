"""The coordinator in memory: an oracle for the real ones, and a stand-in.

It is written from Kafka's rules and the interface, not from the scripts, and as plainly as possible: a list of batches
per log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from operator import attrgetter

from proxy.coordinator import rewriting
from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Announcement,
    BatchAnswer,
    DeleteRequest,
    FindRequest,
    IndexSize,
    ListRequest,
    LogAnswer,
    LogDescription,
    LogStart,
    OffsetAnswer,
    PartitionRun,
    ProducerDescription,
    ProposedBatch,
    RetainRequest,
    Row,
    RunAnswer,
    SegmentUse,
)
from proxy.coordinator.interface_rewriting import IndexedRow, IndexPage, LogState, OpenTransaction, Swap, SwapAnswer
from proxy.coordinator.interface_transactions import AbortedTransaction
from tests.logs_model import LARGEST, PartitionLog, Producer, Transaction
from tests.transactions_model import ModelTransactions

Log = tuple[bytes, int]
Clock = Callable[[], int]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class ModelCoordinator:
    def __init__(
        self,
        *,
        producer_id_expiration_ms: int = 86_400_000,
        producer_batches_remembered: int = 5,
        clock: Clock = wall_clock_ms,
    ) -> None:
        self.logs: dict[Log, PartitionLog] = {}
        self.rows = ModelRows(self)
        self.transactions = ModelTransactions(self)
        self.unused: set[bytes] = set()
        """Segments that had rows, have none, and are not tombstoned."""
        self.tombstones: set[bytes] = set()
        self._answered: dict[tuple[bytes, Log], tuple[BatchAnswer, ...]] = {}
        self._expiration_ms = producer_id_expiration_ms
        self._remembered = producer_batches_remembered
        self._clock = clock
        self._listeners: list[asyncio.Queue[Announcement | None]] = []

    async def create_logs(self, topic_id: bytes, partitions: Sequence[int], *, growing: bool = False) -> None:
        for partition in partitions:
            self.logs.setdefault((topic_id, partition), PartitionLog())

    async def delete_logs(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        for partition in partitions:
            log = self.logs.pop((topic_id, partition), None)
            if log:
                self._freed(log.rows)

    def _freed(self, rows: list[Row]) -> None:
        self.unused |= {row.segment for row in rows if row.length} - self.used_bytes().keys()

    async def delete_records(self, requests: Sequence[DeleteRequest]) -> list[LogStart]:
        answers = []
        for request in requests:
            log = self.logs.get((request.topic_id, request.partition))
            if log is None:
                answers.append(LogStart(3, -1))
                continue
            before = log.end if request.before_offset == -1 else request.before_offset
            if 0 <= before <= log.end:
                self._trim(log, before)
                answers.append(LogStart(0, log.start))
            else:
                answers.append(LogStart(1, -1))
        return answers

    async def retain(self, requests: Sequence[RetainRequest]) -> list[LogStart]:
        answers = []
        for request in requests:
            log = self.logs.get((request.topic_id, request.partition))
            if log is None:
                answers.append(LogStart(3, -1))
                continue
            while log.rows and log.rows[0].last_offset < log.stable and self._lets_go(log, request):
                self._trim(log, log.rows[0].last_offset + 1)
            answers.append(LogStart(0, log.start))
        return answers

    def _lets_go(self, log: PartitionLog, request: RetainRequest) -> bool:
        oldest = log.rows[0]
        append_time = request.by_append_time or oldest.max_timestamp_ms == -1
        time_ms = oldest.append_time_ms if append_time else oldest.max_timestamp_ms
        too_old = request.retention_ms >= 0 and self._clock() - time_ms > request.retention_ms
        size = sum(row.length for row in log.rows)
        return too_old or (request.retention_bytes >= 0 and size - oldest.length >= request.retention_bytes)

    def _trim(self, log: PartitionLog, before: int) -> None:
        log.start = max(log.start, before)
        gone = [row for row in log.rows if row.last_offset < log.start]
        log.rows = log.rows[len(gone) :]
        log.aborted = [one for one in log.aborted if one.last_offset >= log.start]
        self._freed(gone)

    async def used(self, segments: Sequence[bytes]) -> list[bool]:
        return [segment in self.used_bytes() for segment in segments]

    async def segment_use(self, segments: Sequence[bytes]) -> list[SegmentUse]:
        used, rows = self.used_bytes(), [row.segment for log in self.logs.values() for row in log.rows if row.length]
        return [SegmentUse(used.get(segment, 0), rows.count(segment)) for segment in segments]

    async def garbage(self, older_than_ms: int, limit: int) -> list[bytes]:
        """Return garbage of any age: ages are not modelled."""
        return sorted(self.unused)[:limit]

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        unused = [segment for segment in segments if segment not in self.used_bytes()]
        self.tombstones |= set(unused)
        self.unused -= set(segments)
        return unused

    async def tombstoned(self, older_than_ms: int, limit: int) -> list[bytes]:
        return sorted(self.tombstones)[:limit]

    async def release(self, segments: Sequence[bytes]) -> None:
        self.tombstones -= set(segments)

    def used_bytes(self) -> dict[bytes, int]:
        """Return the bytes that the live rows of all logs use of each segment."""
        used: dict[bytes, int] = {}
        for log in self.logs.values():
            for row in filter(attrgetter("length"), log.rows):
                used[row.segment] = used.get(row.segment, 0) + row.length
        return used

    def store_time_ms(self) -> int | None:
        return self._clock()

    def deadline_ms(self, within_ms: int) -> int | None:
        return self._clock() + within_ms

    async def commit(self, segment: bytes, runs: Sequence[PartitionRun], *, not_after_ms: int = 0) -> list[RunAnswer]:
        if 0 < not_after_ms < self._clock():
            return [RunAnswer(run.topic_id, run.partition, 56, (), -1, -1) for run in runs]
        return [self._commit_run(segment, run) for run in runs]

    def _commit_run(self, segment: bytes, run: PartitionRun) -> RunAnswer:
        log = self.logs.get((run.topic_id, run.partition))
        if log is None:
            return RunAnswer(run.topic_id, run.partition, 3, (), -1, -1)
        key = (segment, (run.topic_id, run.partition))
        answers = self._answered.get(key)
        if answers is None and segment in self.tombstones:
            return RunAnswer(run.topic_id, run.partition, 56, (), log.start, log.end)
        if answers is not None and segment in self.tombstones:
            refused = BatchAnswer(56, -1, -1, False)
            answers = tuple(refused if answer.early else answer for answer in answers)
            return RunAnswer(run.topic_id, run.partition, 0, answers, log.start, log.end)
        if answers is None or any(answer.early for answer in answers):
            first_time, rows_before = answers is None, len(log.rows)
            answers = tuple(self._append(log, segment, run, answers))
            if first_time or len(log.rows) > rows_before:
                self._answered[key] = answers
            if len(log.rows) > rows_before:
                self.unused.discard(segment)
                self.announce(run.topic_id, run.partition, log.rows[rows_before:])
        return RunAnswer(run.topic_id, run.partition, 0, answers, log.start, log.end)

    def announce(
        self, topic_id: bytes, partition: int, rows: Sequence[Row], aborted: Sequence[AbortedTransaction] = ()
    ) -> None:
        log = self.logs[topic_id, partition]
        news = Announcement(topic_id, partition, tuple(rows), log.start, log.end, log.stable, tuple(aborted))
        for listener in self._listeners:
            listener.put_nowait(news)

    def _append(
        self, log: PartitionLog, segment: bytes, run: PartitionRun, known: tuple[BatchAnswer, ...] | None
    ) -> list[BatchAnswer]:
        now = self._clock()
        position, answers = run.position, []
        extend = False
        for number, batch in enumerate(run.batches):
            if run.log_append_time:
                batch = batch._replace(max_timestamp_ms=now)
            judged = known is None or known[number].early
            answered_time_ms = now if run.log_append_time else -1
            answer = known[number] if known else BatchAnswer(0, -1, -1, False)
            if judged:
                answer = self._judge(log, batch, now, answered_time_ms, was_early=known is not None)
            answers.append(answer)
            accepted = judged and not answer.error_code and not answer.duplicate
            if accepted:
                newest = max(-LARGEST, min(batch.max_timestamp_ms, LARGEST))
                base, log.end = log.end, log.end + batch.record_count
                row = Row(base, log.end - 1, segment, position, batch.length, newest, now, run.log_append_time)
                if extend:
                    first = log.rows.pop()
                    row = first._replace(
                        last_offset=row.last_offset,
                        length=first.length + row.length,
                        max_timestamp_ms=max(first.max_timestamp_ms, newest),
                    )
                log.rows.append(row)
                log.newest_ms = max(log.newest_ms, newest)
            extend = accepted
            position += batch.length
        return answers

    def _judge(
        self, log: PartitionLog, batch: ProposedBatch, now: int, answered_time_ms: int, *, was_early: bool
    ) -> BatchAnswer:
        """Apply ProducerAppendInfo's rules; update the producer's state if the batch is accepted."""
        fine = BatchAnswer(0, log.end, answered_time_ms, False)
        if batch.producer_id < 0:
            return fine
        if batch.base_sequence < 0:
            return BatchAnswer(87, -1, -1, False)
        if batch.producer_epoch < 0:
            return BatchAnswer(47, -1, -1, False)
        producer = log.producers.get(batch.producer_id)
        if producer and not self.keeps(log, batch.producer_id, producer):
            producer = None
        if producer and batch.producer_epoch < producer.epoch:
            return BatchAnswer(47, -1, -1, False)
        if producer and batch.producer_epoch == producer.epoch:
            for sequence, count, base_offset, timestamp_ms in producer.batches:
                if (sequence, count) == (batch.base_sequence, batch.record_count):
                    if self.transactions.is_earlier(log, batch, base_offset):
                        return BatchAnswer(59, -1, -1, False)
                    return BatchAnswer(0, base_offset, timestamp_ms, True)
        if why := self.transactions.why_not(log, batch):
            return why
        begins = batch.transaction_version == 2 and not log.has_open(batch.producer_id)
        if producer is None:
            if (log.end == 0 or was_early or begins) and batch.base_sequence:
                return _out_of_order(batch, 0)
        elif batch.producer_epoch > producer.epoch or not producer.batches:
            if batch.base_sequence:
                return _out_of_order(batch, 0)
        else:
            sequence, count, _, _ = producer.batches[-1]
            if batch.base_sequence != (sequence + count) % 2**31:
                return _out_of_order(batch, (sequence + count) % 2**31)
        self.transactions.open(log, batch)
        if producer is None or producer.epoch != batch.producer_epoch:
            producer = log.producers[batch.producer_id] = Producer(batch.producer_epoch, now)
        producer.last_append_ms = now
        timestamp_ms = max(-LARGEST, min(batch.max_timestamp_ms, LARGEST))
        producer.batches.append((batch.base_sequence, batch.record_count, log.end, timestamp_ms))
        del producer.batches[: -self._remembered]
        return fine

    def keeps(self, log: PartitionLog, producer_id: int, producer: Producer) -> bool:
        """True if a producer has not expired."""
        return log.has_open(producer_id) or self._clock() - producer.last_append_ms < self._expiration_ms

    async def forget_producers(self, logs: Sequence[Log]) -> int:
        forgotten, now = 0, self._clock()
        for log in filter(None, map(self.logs.get, logs)):
            for producer_id in log.producers.keys() | log.transactions.keys():
                producer, known = log.producers.get(producer_id), log.transactions.get(producer_id)
                times = [producer.last_append_ms] if producer else []
                times += [known.changed_ms] if known else []
                if now - max(times) >= self._expiration_ms and not log.has_open(producer_id):
                    log.producers.pop(producer_id, None)
                    log.transactions.pop(producer_id, None)
                    forgotten += 1
        return forgotten

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        return [self._find(request) for request in requests]

    def _find(self, request: FindRequest) -> LogAnswer:
        log = self.logs.get((request.topic_id, request.partition))
        if log is None:
            return LogAnswer(3, (), -1, -1, -1)
        if not log.start <= request.offset <= log.end:
            return LogAnswer(1, (), log.start, log.end, log.stable)
        rows: list[Row] = []
        for row in log.rows:
            if row.last_offset >= request.offset and (not rows or sum(one.length for one in rows) < request.max_bytes):
                rows.append(row)
        first, end = (rows[0].base_offset, rows[-1].last_offset + 1) if rows else (0, 0)
        aborted = tuple(one for one in log.aborted if one.last_offset >= first and one.first_offset < end)
        return LogAnswer(0, tuple(rows), log.start, log.end, log.stable, aborted)

    async def list_offsets(self, requests: Sequence[ListRequest]) -> list[OffsetAnswer]:
        return [self._list(request) for request in requests]

    def _list(self, request: ListRequest) -> OffsetAnswer:
        log = self.logs.get((request.topic_id, request.partition))
        if log is None:
            return OffsetAnswer(3, -1, -1)
        timestamp = request.timestamp_ms
        if timestamp == EARLIEST_TIMESTAMP:
            return OffsetAnswer(0, log.start, -1)
        if timestamp == LATEST_TIMESTAMP:
            return OffsetAnswer(0, log.end, -1)
        if timestamp == LATEST_STABLE_TIMESTAMP:
            return OffsetAnswer(0, log.stable, -1)
        begin = max(request.from_offset, log.start)
        rows = [row for row in log.rows if row.last_offset >= begin]
        if timestamp == MAX_TIMESTAMP:
            timestamp = max((row.max_timestamp_ms for row in rows), default=LARGEST)
        for row in rows:
            if row.max_timestamp_ms >= timestamp:
                return OffsetAnswer(0, max(row.base_offset, begin), row.max_timestamp_ms)
        return OffsetAnswer(0, -1, -1)

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        logs = [self.logs.get((topic_id, partition)) for partition in partitions]
        return [
            LogDescription(log.start, log.end, sum(row.length for row in log.rows), len(log.rows), log.stable)
            if log
            else None
            for log in logs
        ]

    async def producers(self, topic_id: bytes, partition: int) -> list[ProducerDescription] | None:
        log = self.logs.get((topic_id, partition))
        if log is None:
            return None
        found = []
        for identity, one in sorted(log.producers.items()):
            if self.keeps(log, identity, one):
                sequence, count, _, timestamp_ms = one.batches[-1] if one.batches else (0, 0, -1, -1)
                last = (sequence + count - 1) % 2**31 if one.batches else -1
                known = log.transactions.get(identity, Transaction())
                rest = (timestamp_ms, known.coordinator_epoch, known.first_offset)
                found.append(ProducerDescription(identity, one.epoch, last, *rest))
        return found

    async def pack_rows(self, logs: Sequence[Log], older_than_ms: int) -> None:
        """Do nothing: packing changes no answer."""

    async def index_sizes(self) -> list[IndexSize]:
        """Return the sizes of one shard; a row takes no memory here."""
        return [IndexSize(sum(len(log.rows) for log in self.logs.values()), 0)]

    async def announcements(self) -> AsyncIterator[Announcement | None]:
        queue: asyncio.Queue[Announcement | None] = asyncio.Queue()
        queue.put_nowait(None)
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)


class ModelRows:
    """The part for jobs on object storage."""

    def __init__(self, model: ModelCoordinator) -> None:
        self._model = model

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        for swap in swaps:
            rewriting._check(swap)
        if 0 < not_after_ms < self._model._clock():
            return [SwapAnswer.LATE] * len(swaps)
        return [self._swap(swap) for swap in swaps]

    def _swap(self, swap: Swap) -> SwapAnswer:
        log = self._model.logs.get((swap.topic_id, swap.partition))
        if log is None:
            return SwapAnswer.GONE
        old, new = list(swap.old), swap.new
        if new and new.last_offset < log.start:
            new = None
        at = log.rows.index(old[0]) if old[0] in log.rows else len(log.rows)
        if log.rows[at : at + len(old)] != old:
            touched = [
                row
                for row in log.rows
                if row.base_offset <= old[-1].last_offset and row.last_offset >= old[0].base_offset
            ]
            done = new in log.rows if new else not touched and old[-1].last_offset >= log.start
            return SwapAnswer.REPLACED if done else SwapAnswer.CHANGED
        if new and new.segment in self._model.tombstones:
            return SwapAnswer.REFUSED
        log.rows[at : at + len(old)] = [new] if new else []
        log.aborted = [one for one in log.aborted if one.last_offset not in swap.ended]
        if new:
            self._model.unused.discard(new.segment)
        self._model._freed(old)
        return SwapAnswer.REPLACED

    async def compacted(self, logs: Sequence[Log]) -> list[int]:
        return [self._model.logs[log].compacted if log in self._model.logs else 0 for log in logs]

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        for topic_id, partition, offset in marks:
            log = self._model.logs.get((topic_id, partition))
            if log:
                log.compacted = max(log.compacted, min(offset, log.end))

    async def index_page(self, topic_id: bytes, partition: int, from_offset: int) -> IndexPage:
        """Return the whole index in one page."""
        log = self._model.logs.get((topic_id, partition))
        if log is None:
            return IndexPage(None, (), -1)
        rows: list[IndexedRow] = []
        highest = -LARGEST
        for row in log.rows:
            highest = max(highest, row.max_timestamp_ms)
            if row.last_offset >= from_offset:
                rows.append(IndexedRow(row, highest))
        size = sum(row.length for row in log.rows)
        figures = (log.start, log.end, size, len(log.rows), log.newest_ms)
        opened = sorted(
            OpenTransaction(known.first_offset, producer_id, known.first_offset)
            for producer_id, known in log.transactions.items()
            if known.first_offset >= 0
        )
        state = LogState(*figures, min(log.unstable(), default=log.end), min(log.unstable(), default=-1))
        begun = tuple(one for one in opened if one.first_offset >= from_offset)
        ended = tuple(one for one in log.aborted if one.last_offset >= from_offset)
        return IndexPage(state, tuple(rows), -1, begun, ended)

    async def used_segments(self, shard: int, place: bytes = b"0") -> tuple[list[tuple[bytes, SegmentUse]], bytes]:
        """Return all segments of the only shard."""
        segments = sorted(self._model.used_bytes()) if shard == 0 else []
        return list(zip(segments, await self._model.segment_use(segments), strict=True)), b"0"

    async def tombstones_of(self, shard: int, limit: int) -> list[bytes]:
        return sorted(self._model.tombstones)[:limit]

    async def correct_use(self, shard: int, segment: bytes, expected: SegmentUse, counted: SegmentUse) -> bool:
        """Change nothing: the recorded use is never wrong here."""
        (use,) = await self._model.segment_use([segment])
        return use == expected == counted


def _out_of_order(batch: ProposedBatch, expected: int) -> BatchAnswer:
    """Return the early error if the sequence is ahead of the expected one by less than half of all, else out of
    order."""
    return BatchAnswer(45, -1, -1, False, (batch.base_sequence - expected) % 2**31 < 2**30)
