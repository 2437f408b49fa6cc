"""ListOffsets by time, exact to the record: the coordinator names the row, the row's batches show the record.

This follows `UnifiedLog.fetchOffsetByTimestamp`. By time, the result is the first record from the log start on that has
the timestamp or a later one. For MAX_TIMESTAMP it is the first of the existing records with the highest timestamp. (A
broker may name a deleted record as long as the segment that held it stays.)

Rows are read as a Fetch reads them, a bounded number at a time for all clients together. They are searched in threads
of their own, which rest (`Rests`). A search that no client waits for any more ends soon, and keeps its thread until
then.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter, sleep
from typing import NamedTuple

from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Coordinator,
    FindRequest,
    ListRequest,
    LogAnswer,
    OffsetAnswer,
    Row,
)
from proxy.diskless.record_times import RecordTime, first_since, is_compressed, newest
from proxy.diskless.row_reader import RowReader
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE, REQUEST_TIMED_OUT
from proxy.storage.interface import ObjectMissing, StorageError
from proxy.telemetry.throttled_log import ThrottledLog

MAX_ATTEMPTS = 3
"""To read a row: it may be trimmed or moved, and its object deleted, while it is being looked for."""
_INLINE_BYTES = 4096
"""Rows up to this size without compression are searched on the event loop, all others in a thread."""
_NOTHING = OffsetAnswer(NONE, -1, -1)
_ENDS = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, LATEST_STABLE_TIMESTAMP)
_LONGEST_REST_S = 0.005
"""After one stretch of work, which takes less than a millisecond of a thread that does not wait for the interpreter."""


class Rests:
    """Lets the searches of all threads have half of the interpreter at most.

    A thread that searches keeps the interpreter's lock for milliseconds at a time, and the event loop waits for it
    before every callback. So one thread searches at a time, for a stretch of some records, and then sleeps for as long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._began_s = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._rest()
        self._lock.release()

    def between_stretches(self) -> None:
        """Rest, and let another search go on if one waits."""
        self._rest()
        self._lock.release()
        self._lock.acquire()
        self._began_s = perf_counter()

    def _rest(self) -> None:
        sleep(min(perf_counter() - self._began_s, _LONGEST_REST_S))


class _Search:
    """One request until it is answered."""

    def __init__(self, request: ListRequest, *, committed: bool) -> None:
        self.request = request
        self.stable_end: int | None = None
        """The last stable offset when it was last seen, for a search for committed records."""
        self._committed = committed
        self.attempts = 0
        self.best: RecordTime | None = None
        """For MAX_TIMESTAMP: of the rows so far, whose maximum is not that of a record that is still there."""
        self.answer: OffsetAnswer | None = None

    def note(self, log: LogAnswer) -> None:
        """Note the bounds of the log."""
        if self._committed:
            self.stable_end = log.last_stable_offset

    def readable(self) -> OffsetAnswer | None:
        """Return the answer; an offset that a reader of committed records does not get to is not found
        (`Partition.fetchOffsetForTimestamp`)."""
        if self.answer is None or self.stable_end is None or self.answer.offset < self.stable_end:
            return self.answer
        return _NOTHING

    def end(self) -> None:
        """End the search: there is no other row to look at."""
        self.answer = _NOTHING if self.best is None else OffsetAnswer(NONE, *self.best)

    def go_on_behind(self, row: Row) -> None:
        self.attempts = 0
        self.request = self.request._replace(from_offset=row.last_offset + 1)


class _Place(NamedTuple):
    """A row that may hold the record of a search."""

    search: _Search
    row: Row
    from_offset: int
    """Records before it are not there any more, or not looked for."""
    timestamp_ms: int
    """The row's maximum, as the coordinator has it."""


class TimeLookup:
    """Answers ListOffsets.

    `max_rows` are searched at a time; `max_batch_bytes` are decompressed at most for one of them.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        rows: RowReader,
        throttled_log: ThrottledLog,
        *,
        max_rows: int,
        max_batch_bytes: int,
    ) -> None:
        self._coordinator = coordinator
        self._rows = rows
        self._throttled_log = throttled_log
        self._reads = asyncio.Semaphore(max_rows)
        self.max_batch_bytes = max_batch_bytes
        self._threads = ThreadPoolExecutor(max_rows, thread_name_prefix="time-lookup")
        self._closed = threading.Event()
        self._rests = Rests()

    def close(self) -> None:
        """End the searches under way."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def list_offsets(
        self, requests: Sequence[ListRequest], timeout_s: float, *, committed: bool = False
    ) -> list[OffsetAnswer]:
        """Return offsets in the order of the requests; errors are per request. `committed`: none from the last stable
        offset on, except the log's end.

        REQUEST_TIMED_OUT for those without an answer in time, KAFKA_STORAGE_ERROR if a row can't be read. Raises
        CoordinatorUnavailable.
        """
        searches = [_Search(request, committed=committed) for request in requests]
        try:
            async with asyncio.timeout(timeout_s):
                while left := [search for search in searches if search.answer is None]:
                    await self._round(left)
        except TimeoutError:
            self._throttled_log.warning("offsets_by_time_too_late", timeout_s=timeout_s)
        late = OffsetAnswer(REQUEST_TIMED_OUT, -1, -1)
        return [search.readable() or late for search in searches]

    async def _round(self, searches: Sequence[_Search]) -> None:
        """Look at one row for each."""
        answers = await self._coordinator.list_offsets([search.request for search in searches])
        named: list[tuple[_Search, OffsetAnswer]] = []
        for search, answer in zip(searches, answers, strict=True):
            if search.request.timestamp_ms in _ENDS or answer.error_code:
                search.answer = answer
            elif answer.offset < 0 or (search.best is not None and answer.timestamp_ms <= search.best.timestamp_ms):
                search.end()
            else:
                named.append((search, answer))
        if named:
            await asyncio.gather(*map(self._look, await self._places(named)))

    async def _places(self, named: Iterable[tuple[_Search, OffsetAnswer]]) -> list[_Place]:
        named = list(named)
        wanted = [
            FindRequest(search.request.topic_id, search.request.partition, answer.offset, 0) for search, answer in named
        ]
        found = await self._coordinator.find(wanted)
        places = []
        for (search, answer), log_answer in zip(named, found, strict=True):
            search.note(log_answer)
            if log_answer.error_code not in (NONE, OFFSET_OUT_OF_RANGE):
                search.answer = OffsetAnswer(log_answer.error_code, -1, -1)
            elif log_answer.rows:
                places.append(_place(search, answer, log_answer))
            else:
                self._count_attempt(search, "the log start has passed it")
        return places

    async def _look(self, place: _Place) -> None:
        search, row = place.search, place.row
        try:
            found = await self._search(place)
        except StorageError as error:
            self._count_attempt(search, str(error), gone=isinstance(error, ObjectMissing))
            return
        if search.request.timestamp_ms != MAX_TIMESTAMP:
            if found is not None:
                search.answer = OffsetAnswer(NONE, *found)
        else:
            if found is not None and (search.best is None or found.timestamp_ms > search.best.timestamp_ms):
                search.best = found
            if found is not None and found.timestamp_ms >= place.timestamp_ms:
                search.end()
        search.go_on_behind(row)

    def _count_attempt(self, search: _Search, reason: str, *, gone: bool = False) -> None:
        """Count a further question to the coordinator: the row that it named has changed since, or can't be read."""
        search.attempts += 1
        if search.attempts >= MAX_ATTEMPTS:
            self._throttled_log.warning(
                "offset_by_time_unreadable", partition=search.request.partition, reason=reason, gone=gone
            )
            search.answer = OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1)

    async def _search(self, place: _Place) -> RecordTime | None:
        given_up = threading.Event()
        timestamp_ms, limit = place.search.request.timestamp_ms, self.max_batch_bytes

        def stopped() -> bool:
            self._rests.between_stretches()
            return given_up.is_set() or self._closed.is_set()

        def look(stopped: Callable[[], bool]) -> RecordTime | None:
            if timestamp_ms == MAX_TIMESTAMP:
                return newest(run, place.from_offset, max_batch_bytes=limit, stopped=stopped)
            return first_since(run, timestamp_ms, place.from_offset, max_batch_bytes=limit, stopped=stopped)

        def look_in_stretches() -> RecordTime | None:
            with self._rests:
                return look(stopped)

        await self._reads.acquire()
        under_way = None
        try:
            run = self._rows.cached(place.row) or await self._rows.run(place.row)
            if len(run.data) <= _INLINE_BYTES and not is_compressed(run):
                return look(_never)
            under_way = self._threads.submit(look_in_stretches)
            return await asyncio.wrap_future(under_way)
        finally:
            given_up.set()
            if under_way is None:
                self._reads.release()
            else:
                # A thread can't be cancelled: the next row has its turn when this one's search has really ended.
                under_way.add_done_callback(self._release_from(asyncio.get_running_loop()))

    def _release_from(self, loop: asyncio.AbstractEventLoop) -> Callable[[object], None]:
        def release(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._reads.release)

        return release


def _never() -> bool:
    return False


def _place(search: _Search, answer: OffsetAnswer, log_answer: LogAnswer) -> _Place:
    from_offset = max(search.request.from_offset, log_answer.log_start_offset)
    return _Place(search, log_answer.rows[0], from_offset, answer.timestamp_ms)
