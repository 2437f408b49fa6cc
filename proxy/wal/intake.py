"""The way of a checked batch into the WAL buffer: at once, or by way of a thread where work on it takes long.

Work is what `produce_rules.prepare_batch` does: decompress, look at each record's time, compress anew. While a batch of
a partition is being worked on, those that come after it wait behind it, so the order of arrival stays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from proxy.compression import NONE
from proxy.errors import KAFKA_STORAGE_ERROR
from proxy.produce_rules import ProduceRules, prepare_batch
from proxy.records import BatchHeader, RecordsError
from proxy.wal.buffer import WalBuffer
from proxy.wal.outcome import Outcome, Settle

_Prepared = tuple[memoryview, BatchHeader]
_Partition = tuple[bytes, int]

QUICK_BYTES, QUICK_RECORDS = 8_192, 100
"""An uncompressed batch of no more is worked on in the event loop: that takes about as long as handing it over."""


class _Waiting(NamedTuple):
    """A batch that is being worked on, or waits behind one."""

    prepared: asyncio.Future[_Prepared]
    log_append_time: bool
    producer_id: int
    settle: Settle


class Intake:
    """Gives batches to the WAL buffer, per partition in their order. `threads`: at work at the same time."""

    def __init__(self, wal: WalBuffer, *, max_decompressed_bytes: int, threads: int) -> None:
        self._wal = wal
        self._max_decompressed_bytes = max_decompressed_bytes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="intake")
        self._queues: dict[_Partition, deque[_Waiting]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting_batches(self) -> int:
        """Being worked on, or waiting behind such a one."""
        return sum(map(len, self._queues.values()))

    def append(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        rules: ProduceRules,
        now_ms: int,
        settle: Settle,
    ) -> None:
        """Take a batch whose header was checked. `settle` is called once, later; `batch` must not change until then.

        `now_ms`: since 1970, when it came.
        """
        needs_work = rules.needs_preparing(header, now_ms)
        queue = self._queues.get((topic_id, partition))
        quick = header.compression == NONE and header.length <= QUICK_BYTES and header.record_count <= QUICK_RECORDS
        if needs_work and quick:
            try:
                batch, header = self._prepare(batch, header, rules, now_ms)
            except RecordsError as error:
                self._refuse((topic_id, partition), header.producer_id, error, settle)
                return
            needs_work = False
        if queue is None and not needs_work:
            stamped = rules.log_append_time
            self._wal.append(topic_id, partition, batch, header, settle, log_append_time=stamped)
            return
        loop = asyncio.get_running_loop()
        if needs_work:
            prepared = loop.run_in_executor(self._threads, self._prepare, batch, header, rules, now_ms)
        else:
            prepared = loop.create_future()
            prepared.set_result((batch, header))
        if queue is None:
            queue = self._queues[topic_id, partition] = deque()
            self._empty.clear()
        queue.append(_Waiting(prepared, rules.log_append_time, header.producer_id, settle))
        prepared.add_done_callback(lambda _: self._move_on((topic_id, partition)))

    async def drain(self) -> None:
        """Wait until all are in the buffer, or refused."""
        await self._empty.wait()

    async def close(self) -> None:
        """Give up on what waits; a thread that is at work ends its batch in its own time."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        queues, self._queues = self._queues, {}
        self._empty.set()
        for queue in queues.values():
            for waiting in queue:
                waiting.prepared.cancel()
                waiting.settle(Outcome(KAFKA_STORAGE_ERROR))

    def _prepare(self, batch: memoryview, header: BatchHeader, rules: ProduceRules, now_ms: int) -> _Prepared:
        return prepare_batch(batch, header, rules, now_ms, max_decompressed_bytes=self._max_decompressed_bytes)

    def _refuse(self, partition: _Partition, producer_id: int, error: RecordsError, settle: Settle) -> None:
        self._wal.holds.refused(*partition, producer_id)
        settle(Outcome(error.error_code, error_message=str(error), record_errors=error.record_errors))

    def _move_on(self, partition: _Partition) -> None:
        """Give the buffer what is ready and has nothing before it any more."""
        queue = self._queues.get(partition)
        while queue and queue[0].prepared.done():
            waiting = queue.popleft()
            error = waiting.prepared.exception()
            if error is None:
                batch, header = waiting.prepared.result()
                self._wal.append(*partition, batch, header, waiting.settle, log_append_time=waiting.log_append_time)
            elif isinstance(error, RecordsError):
                self._refuse(partition, waiting.producer_id, error, waiting.settle)
            else:
                waiting.settle(Outcome(KAFKA_STORAGE_ERROR))
                raise error
        if not queue and self._queues.pop(partition, None) is not None and not self._queues:
            self._empty.set()
