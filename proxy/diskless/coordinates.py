"""Batch coordinates of the tails of diskless logs, kept up to date by announcements, and readers that wait for more.

The tails are never the authority on what does *not* exist: for offsets outside of them the coordinator is asked. A tail
is a range of rows that ends at the high watermark. It grows by announcements that fit to its end. An announcement that
does not fit, or a lost subscription, discards it.

After some seconds rows are requested again, because others may have replaced them: merges and compactions are not
announced. After a merge the old rows lead to the same records. After a compaction, a reader that continued with the old
rows could read a record from them and then miss, in the new ones, that the record was deleted. While the coordinator
can't be reached, rows are read without asking it, for a limited time: this proxy may be the only one that is cut off,
and the log may be trimmed, compacted or deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from proxy.coordinator.interface import (
    Announcement,
    Coordinator,
    CoordinatorUnavailable,
    FindRequest,
    LogAnswer,
    Row,
    RunAnswer,
)
from proxy.diskless.rows_ahead import RowsAhead, aborted_in, rows_for
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from proxy.telemetry.throttled_log import ThrottledLog

Partition = tuple[bytes, int]

_MAX_TAILS = 20_000
_MAX_ROWS_PER_TAIL = 256
"""About 200 bytes a row: 1 GiB if every tail were full, which takes 20,000 partitions read at the same time."""
_MAX_ROWS_AHEAD = 64
_ROWS_TRUSTED_S = 15.0
"""At least; at most three times as long, which is less than the grace of objects that nothing uses (`garbage.grace_ms`)
by default."""
_NOT_ASKED_S = 5.0
"""Pause after a failure of the coordinator, in which it is not asked about old rows: each call may take long to
fail."""


class _Tail:
    """Rows up to the high watermark, oldest first."""

    __slots__ = (
        "_mark_offset",
        "_marked_s",
        "aborted",
        "confirmed_s",
        "high_watermark",
        "known_high_watermark",
        "known_stable_offset",
        "last_stable_offset",
        "log_start_offset",
        "old_before",
        "rows",
    )

    def __init__(self, answer: LogAnswer, now_s: float) -> None:
        high_watermark = answer.high_watermark
        self.rows = list(answer.rows)
        self.aborted = list(answer.aborted)
        """Aborted transactions that may have records in the rows."""
        self.last_stable_offset = answer.last_stable_offset
        self.confirmed_s = now_s
        """Time of the coordinator's last answer about the log."""
        self._marked_s = now_s
        self._mark_offset = high_watermark
        """The high watermark at that time: rows before it have been known since then, or longer."""
        self.old_before = 0
        """Rows before it have been known for too long."""
        self.log_start_offset = answer.log_start_offset
        self.high_watermark = high_watermark
        self.known_high_watermark = high_watermark
        self.known_stable_offset = answer.last_stable_offset
        """Both may be ahead of the tail's own, until the announcement comes: this proxy has committed more itself, or
        another answer had more."""

    @property
    def is_behind(self) -> bool:
        """Return whether an answer of this proxy may have had later ends."""
        return self.high_watermark < self.known_high_watermark or self.last_stable_offset < self.known_stable_offset

    def know(self, high_watermark: int, last_stable_offset: int) -> None:
        """Note ends that the coordinator has given; a tail with lower ones gives no more answers."""
        self.known_high_watermark = max(self.known_high_watermark, high_watermark)
        self.known_stable_offset = max(self.known_stable_offset, last_stable_offset)

    def age(self, now_s: float) -> None:
        """Note which rows have been known for too long."""
        if now_s - self._marked_s < _ROWS_TRUSTED_S:
            return
        known_for_twice = now_s - self._marked_s >= 2 * _ROWS_TRUSTED_S
        self.old_before = self.high_watermark if known_for_twice else self._mark_offset
        self._marked_s, self._mark_offset = now_s, self.high_watermark

    def answer(self, rows: Sequence[Row]) -> LogAnswer:
        """Return an answer with some of the rows."""
        stable = max(self.last_stable_offset, self.log_start_offset)
        aborted = aborted_in(self.aborted, rows)
        return LogAnswer(NONE, tuple(rows), self.log_start_offset, self.high_watermark, stable, aborted)

    def extend(self, news: Announcement) -> None:
        """Take over an announcement that begins at the end of the tail."""
        self.rows.extend(news.rows)
        self.aborted.extend(news.aborted)
        self.high_watermark, self.last_stable_offset = news.high_watermark, news.last_stable_offset

    def drop(self, rows: int) -> None:
        """Drop the oldest rows."""
        del self.rows[:rows]
        if self.aborted:
            first = self.rows[0].base_offset if self.rows else self.high_watermark
            self.aborted = [one for one in self.aborted if one.last_offset >= first]


class Coordinates:
    """Finds rows, from memory if that is certain to be right, otherwise by asking the coordinator."""

    def __init__(
        self, coordinator: Coordinator, *, max_age_s: float = 60.0, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Take `fetch.coordinates_max_age_ms` as `max_age_s`, and a monotonic clock in seconds as `now_s`."""
        self._coordinator = coordinator
        self.max_age_s = max_age_s
        self._now_s = now_s
        self._tails: OrderedDict[Partition, _Tail] = OrderedDict()
        self._ahead = RowsAhead()
        self._waiting: dict[Partition, set[asyncio.Event]] = {}
        self._announced: dict[Partition, int] = {}
        """High watermarks announced while someone listens: an answer of `find` may be older than they are."""
        self._following = False
        self._old_are_true_until_s = 0.0
        self._throttled_log = ThrottledLog(now_s)
        self.on_open_transaction: Callable[[bytes, int], None] = lambda topic_id, partition: None
        """Called when an announcement says that a transaction is open in a log."""

    async def locate(self, requests: Sequence[FindRequest], *, trust_ends: bool, committed: bool) -> list[LogAnswer]:
        """Return the rows for each request; KAFKA_STORAGE_ERROR if only the coordinator knows them and does not answer.

        With `trust_ends` a cached high watermark counts as the end of the log. A reader may do that if it has asked the
        coordinator in this same request and has been listening since. The same holds for the last stable offset if the
        reader reads no further (`committed`).
        """
        answers: list[LogAnswer | None] = [
            self._remembered(request, trust_ends, committed=committed) for request in requests
        ]
        unknown = [place for place, answer in enumerate(answers) if answer is None]
        if unknown:
            wanted = [requests[place] for place in unknown]
            try:
                found = await self._coordinator.find(self._ahead.widened(wanted))
            except CoordinatorUnavailable as error:
                self._throttled_log.warning("coordinates_unavailable", reason=str(error))
                found = [LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1, -1)] * len(unknown)
                self._old_are_true_until_s = self._now_s() + _NOT_ASKED_S
            for place, answer in zip(unknown, found, strict=True):
                if answer.error_code == KAFKA_STORAGE_ERROR:
                    old = self._remembered(requests[place], trust_ends, committed=committed, also_old=True)
                    answers[place] = old or answer
                else:
                    self._learn(requests[place], answer)
                    answers[place] = (
                        self._ahead.keep(requests[place], answer, self._now_s()) if self._following else answer
                    )
        return [answer for answer in answers if answer is not None]

    def following_rows(self, topic_id: bytes, partition: int, offset: int, max_bytes: int) -> Sequence[Row]:
        """Return the rows that a reader who goes on at an offset is likely to get, as far as they are known.

        Those that `locate` would not return are left out: their segments may have been merged and deleted.
        """
        log = topic_id, partition
        now_s = self._now_s()
        tail = self._tails.get(log)
        rows: Sequence[Row] = ()
        if tail is not None and not tail.is_behind and tail.rows and tail.rows[0].base_offset <= offset:
            tail.age(now_s)
            rows = tail.rows if offset >= tail.old_before else ()
        rows = rows or self._ahead.around(log, offset, not_before_s=now_s - _ROWS_TRUSTED_S)
        first = bisect_left(rows, offset, key=lambda row: row.last_offset)
        return rows_for(rows[first : first + _MAX_ROWS_AHEAD], 0, max_bytes) if first < len(rows) else ()

    def listen(self, partitions: Iterable[Partition], event: asyncio.Event | None = None) -> asyncio.Event:
        """Return an event that is set when any of the partitions may have more to read; end it with `unlisten`.

        `event` is one that listens to other partitions already.
        """
        event = event or asyncio.Event()
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(event)
        return event

    def unlisten(self, partitions: Iterable[Partition], event: asyncio.Event) -> None:
        """Forget an event of `listen`."""
        for partition in partitions:
            events = self._waiting.get(partition)
            if events is not None:
                events.discard(event)
                if not events:
                    del self._waiting[partition]
                    self._announced.pop(partition, None)

    async def follow(self) -> None:
        """Take announcements forever."""
        async for announcement in self._coordinator.announcements():
            if announcement is None:
                self._following = True
                self._tails.clear()
                self._ahead.forget()
                for events in self._waiting.values():
                    _wake(events)
            else:
                self._take(announcement)
                if announcement.last_stable_offset < announcement.high_watermark:
                    self.on_open_transaction(announcement.topic_id, announcement.partition)

    def note(
        self,
        topic_id: bytes,
        partition: int,
        log_start_offset: int = -1,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
    ) -> None:
        """Take over bounds of a log that the coordinator gave other than by `find`; no later answer goes below them.

        So a client that this proxy has answered can read here what it was answered, even before the announcement has
        come.
        """
        log = topic_id, partition
        if self._ahead:  # rarely: a commit notes thousands of logs in one step
            self._ahead.note(log, log_start_offset, high_watermark, last_stable_offset)
        tail = self._tails.get(log)
        if tail is not None:
            tail.know(high_watermark, last_stable_offset)
            self._raise_log_start(tail, log_start_offset)

    def note_committed(self, answers: Iterable[RunAnswer]) -> None:
        """Call `note` with the bounds in the answers of commits."""
        for answer in answers:
            self.note(answer.topic_id, answer.partition, answer.log_start_offset, answer.high_watermark)

    def forget(self, topic_id: bytes) -> None:
        """A topic is gone."""
        for partition in [partition for partition in self._tails if partition[0] == topic_id]:
            del self._tails[partition]
        self._ahead.forget(topic_id)

    def _remembered(
        self, request: FindRequest, trust_ends: bool, *, committed: bool, also_old: bool = False
    ) -> LogAnswer | None:
        """`also_old`: rows that have been known for long, too."""
        answer = self._in_tail(request, trust_ends, committed=committed, also_old=also_old)
        if answer is not None:
            return answer
        now_s = self._now_s()
        also_old = also_old or now_s < self._old_are_true_until_s
        not_before_s = now_s - (self.max_age_s if also_old else _ROWS_TRUSTED_S)
        return self._ahead.find(request, not_before_s=not_before_s, committed=committed, fewer=also_old)

    def _in_tail(self, request: FindRequest, trust_ends: bool, *, committed: bool, also_old: bool) -> LogAnswer | None:
        tail = self._tails.get((request.topic_id, request.partition))
        if tail is None or tail.is_behind:
            return None
        now_s = self._now_s()
        too_old = now_s - tail.confirmed_s > self.max_age_s
        if request.offset == tail.high_watermark and trust_ends and not too_old:
            return tail.answer(())
        if committed and not (trust_ends or also_old) and request.offset >= tail.last_stable_offset:
            return None
        tail.age(now_s)
        also_old = (also_old or now_s < self._old_are_true_until_s) and not too_old
        rows = tail.rows
        if not rows or not max(rows[0].base_offset, tail.log_start_offset) <= request.offset < tail.high_watermark:
            return None
        first = bisect_left(rows, request.offset, key=lambda row: row.last_offset)
        if first == len(rows) or (rows[first].last_offset < tail.old_before and not also_old):
            return None
        self._tails.move_to_end((request.topic_id, request.partition))
        return tail.answer(rows_for(rows, first, request.max_bytes))

    def _learn(self, request: FindRequest, answer: LogAnswer) -> None:
        """Begin a tail if an answer reaches the end of the log."""
        partition = request.topic_id, request.partition
        if not self._following or answer.error_code != NONE:
            self._tails.pop(partition, None)
            return
        known, now_s = self._tails.get(partition), self._now_s()
        if known is not None:
            known.confirmed_s = now_s
            known.know(answer.high_watermark, answer.last_stable_offset)
        if answer.high_watermark < self._announced.get(partition, 0):
            return
        end = answer.rows[-1].last_offset + 1 if answer.rows else request.offset
        if end != answer.high_watermark:
            return
        if known is not None and known.high_watermark >= answer.high_watermark:
            return
        self._tails[partition] = _Tail(answer, now_s)
        if known is not None:
            self.note(*partition, known.log_start_offset, known.known_high_watermark, known.known_stable_offset)
        if len(self._tails) > _MAX_TAILS:
            self._tails.popitem(last=False)

    def _take(self, news: Announcement) -> None:
        partition = news.topic_id, news.partition
        self._ahead.note(partition, news.log_start_offset, news.high_watermark, news.last_stable_offset)
        tail = self._tails.get(partition)
        if tail is not None and news.high_watermark > tail.high_watermark:
            if news.rows and news.rows[0].base_offset == tail.high_watermark:
                tail.age(self._now_s())
                tail.extend(news)
                self._raise_log_start(tail, news.log_start_offset)
                if len(tail.rows) > _MAX_ROWS_PER_TAIL:
                    tail.drop(_MAX_ROWS_PER_TAIL // 2)
            else:
                del self._tails[partition]
        elif tail is not None:
            self._raise_log_start(tail, news.log_start_offset)
        if partition in self._waiting:
            self._announced[partition] = news.high_watermark
            _wake(self._waiting[partition])

    @staticmethod
    def _raise_log_start(tail: _Tail, log_start_offset: int) -> None:
        if log_start_offset > tail.log_start_offset:
            tail.log_start_offset = log_start_offset
            tail.drop(bisect_left(tail.rows, log_start_offset, key=lambda row: row.last_offset))


def _wake(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
