"""The way of a checked batch into the WAL buffer: at once, or by way of a thread if work on it takes long.

The work is `produce_rules.prepare_batch`: decompress, look at each record's time, compress again. While a batch of a
partition is being worked on, later batches of the partition wait, so the order of arrival stays. Topics take turns at
the threads, so many slow batches of one topic hardly delay another topic's. The size of the new batch is charged to the
memory budget. Above the budget, new batches may fill a share of it, which clients that wait for memory leave no room
for otherwise; beyond that share, only one batch is worked on, and only while no new batch waits for its commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import structlog

from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.diskless.produce_rules import ProduceRules, prepare_batch
from proxy.diskless.wal.interface import Wal
from proxy.diskless.wal.outcome import Outcome, Settle, report
from proxy.process.memory import MemoryBudget
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from proxy.records.batches import BatchHeader, RecordsError
from proxy.records.compression import NONE

log = structlog.get_logger()

_SHARE_ABOVE_BUDGET = 8
"""Part of the budget that new batches may hold if the budget is spent: an eighth."""
_Prepared = tuple[memoryview, BatchHeader]
_Partition = tuple[bytes, int]

QUICK_BYTES, QUICK_RECORDS = 8_192, 100
"""An uncompressed batch of no more is worked on in the event loop: that takes about as long as handing it over."""


class _Charge:
    """Settles a batch, and returns the memory charged for its new form; its request holds that of the original."""

    __slots__ = ("_intake", "_settle", "size")

    def __init__(self, intake: Intake, settle: Settle) -> None:
        self._intake = intake
        self._settle = settle
        self.size = 0
        """Size in bytes, 0 if nothing new was made."""

    def __call__(self, outcome: Outcome) -> None:
        try:
            self._settle(outcome)
        finally:
            self._intake.settled(self.size)


class _Work(NamedTuple):
    """A batch that a thread is to work on, and the place for the result."""

    prepared: asyncio.Future[_Prepared]
    charge: _Charge
    batch: memoryview
    header: BatchHeader
    rules: ProduceRules
    now_ms: int


class _Waiting(NamedTuple):
    """A batch that is being worked on, or waits for an earlier one."""

    prepared: asyncio.Future[_Prepared]
    rules: ProduceRules
    header: BatchHeader
    """The batch as it came."""
    settle: Settle
    markers_from: int


class Intake:
    """Gives batches to the WAL buffer, per partition in their order.

    `max_decompressed_bytes` and `max_records`: see `prepare_batch`. `threads`: at work at the same time.
    """

    def __init__(
        self, wal: Wal, memory: MemoryBudget, *, max_decompressed_bytes: int, max_records: int, threads: int
    ) -> None:
        self._wal = wal
        self._memory = memory
        self.max_decompressed_bytes = max_decompressed_bytes
        self.max_records = max_records
        self._most_threads = threads
        self._busy_threads = 0
        self._busy_bytes = 0
        """Bytes of the batches that they work on."""
        self._made_bytes = 0
        """Bytes of batches that the threads made and that are not settled yet."""
        self._undone: dict[bytes, deque[_Work]] = {}
        """Work by topic ID; the first topic has its turn."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="intake")
        self._queues: dict[_Partition, deque[_Waiting]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting_batches(self) -> int:
        """Return the number of batches that are being worked on or wait for an earlier one."""
        return sum(map(len, self._queues.values()))

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        """Note that this proxy has rejected a batch of the producer, so that later ones need not wait for it."""
        self._wal.refused(topic_id, partition, producer_id)

    def not_stored(self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Note that a batch of the producer failed with a retriable error before it came here."""
        self._wal.not_stored(topic_id, partition, producer_id, epoch, base_sequence)

    def append(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        rules: ProduceRules,
        now_ms: int,
        settle: Settle,
        *,
        markers_from: int = NO_MARKERS,
    ) -> None:
        """Take a batch whose header was checked. `settle` is called once, later; `batch` must not change until then.

        `now_ms`: since 1970, when it came. `markers_from`: see `ProposedBatch`.
        """
        needs_work = rules.needs_preparing(header, now_ms)
        queue = self._queues.get((topic_id, partition))
        quick = header.compression == NONE and header.length <= QUICK_BYTES and header.record_count <= QUICK_RECORDS
        if needs_work and quick:
            try:
                made = self._prepare(batch, header, rules, now_ms)
            except Exception as error:
                self._refuse((topic_id, partition), header, error, settle)
                return
            # It is small and not charged: what waits behind another must not keep that from being worked on.
            batch, header = made
            needs_work = False
        if queue is None and not needs_work:
            self._give(topic_id, partition, batch, header, rules, settle, markers_from)
            return
        prepared: asyncio.Future[_Prepared] = asyncio.get_running_loop().create_future()
        if queue is None:
            queue = self._queues[topic_id, partition] = deque()
            self._empty.clear()
        charge = _Charge(self, settle)
        queue.append(_Waiting(prepared, rules, header, charge, markers_from))
        prepared.add_done_callback(lambda _: self._move_on((topic_id, partition)))
        if needs_work:
            work = _Work(prepared, charge, batch, header, rules, now_ms)
            self._undone.setdefault(topic_id, deque()).append(work)
            self._start_work()
        else:
            prepared.set_result((batch, header))

    async def drain(self) -> None:
        """Wait until all batches are in the buffer, or rejected."""
        await self._empty.wait()

    async def close(self) -> None:
        """Give up on what waits; a thread that is at work ends its batch in its own time."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._undone.clear()
        queues, self._queues = self._queues, {}
        self._empty.set()
        for queue in queues.values():
            for waiting in queue:
                waiting.prepared.cancel()
                report([(waiting.settle, Outcome(KAFKA_STORAGE_ERROR))])

    def _start_work(self) -> None:
        """Give free threads batches, a topic's first one each in turn, as far as memory allows."""
        loop = asyncio.get_running_loop()
        while self._undone and self._busy_threads < self._most_threads:
            idle = not self._busy_threads and not self._made_bytes
            limit_bytes = self._memory.limit_bytes
            has_share = self._busy_bytes + self._made_bytes < limit_bytes // _SHARE_ABOVE_BUDGET
            if not idle and not has_share and self._memory.used_bytes >= limit_bytes:
                return  # what was made is settled some time, and then there is room, or nothing that is waited for
            topic_id, works = next(iter(self._undone.items()))
            work = works.popleft()
            del self._undone[topic_id]
            if works:
                self._undone[topic_id] = works
            self._busy_threads += 1
            self._busy_bytes += len(work.batch)
            done = loop.run_in_executor(self._threads, self._prepare, *work[2:])
            done.add_done_callback(partial(self._work_done, work))

    def _work_done(self, work: _Work, done: asyncio.Future[_Prepared]) -> None:
        self._busy_threads -= 1
        self._busy_bytes -= len(work.batch)
        if done.cancelled():
            return  # by `close`, which has reported to everyone
        error = done.exception()
        if work.prepared.done():
            return
        if error is not None:
            work.prepared.set_exception(error)
        else:
            made = done.result()
            if made[0].obj is not work.batch.obj:
                work.charge.size = len(made[0])
                self._made_bytes += work.charge.size
                self._memory.take(work.charge.size)
            work.prepared.set_result(made)
        self._start_work()

    def settled(self, size: int) -> None:
        """A batch is; `size` bytes were charged for it."""
        if size:
            self._made_bytes -= size
            self._memory.give_back(size)
            self._start_work()

    def _prepare(self, batch: memoryview, header: BatchHeader, rules: ProduceRules, now_ms: int) -> _Prepared:
        return prepare_batch(
            batch,
            header,
            rules,
            now_ms,
            max_decompressed_bytes=self.max_decompressed_bytes,
            max_records=self.max_records,
        )

    def _refuse(self, partition: _Partition, header: BatchHeader, error: BaseException, settle: Settle) -> None:
        self._wal.refused(*partition, header.producer_id)
        if isinstance(error, RecordsError):
            outcome = Outcome(error.error_code, error_message=str(error), record_errors=error.record_errors)
        else:
            log.error("batch_not_prepared", partition=partition[1], exc_info=error)
            self._wal.not_stored(*partition, header.producer_id, header.producer_epoch, header.base_sequence)
            outcome = Outcome(KAFKA_STORAGE_ERROR)
        report([(settle, outcome)])

    def _move_on(self, partition: _Partition) -> None:
        """Give the buffer the batches that are ready and have nothing before them any more."""
        queue = self._queues.get(partition)
        try:
            while queue and queue[0].prepared.done():
                self._hand_over(partition, queue.popleft())
        finally:
            if not queue and self._queues.pop(partition, None) is not None and not self._queues:
                self._empty.set()

    def _hand_over(self, partition: _Partition, waiting: _Waiting) -> None:
        """Hand over one batch, or report its rejection; an error concerns only this batch, not the later ones."""
        error = waiting.prepared.exception()
        if error is not None:
            self._refuse(partition, waiting.header, error, waiting.settle)
            return
        batch, header = waiting.prepared.result()
        try:
            self._give(*partition, batch, header, waiting.rules, waiting.settle, waiting.markers_from)
        except Exception as failure:
            self._refuse(partition, waiting.header, failure, waiting.settle)

    def _give(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        rules: ProduceRules,
        settle: Settle,
        markers_from: int,
    ) -> None:
        self._wal.append(
            topic_id,
            partition,
            batch,
            header,
            settle,
            log_append_time=rules.log_append_time,
            patience_s=rules.patience_s,
            markers_from=markers_from,
        )
