"""Batch coordinates of the tails of diskless logs, kept up to date by announcements, and readers that wait for more.

What is kept here is never the authority on what does *not* exist: offsets outside of it are asked of the coordinator.
A tail is a contiguous range of rows that ends at the high watermark. It grows by announcements that fit to its end; one
that does not fit, or a lost subscription, throws it away.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import structlog

from proxy.coordinator.interface import (
    Announcement,
    Coordinator,
    CoordinatorUnavailable,
    FindRequest,
    LogAnswer,
    Row,
    RunAnswer,
)
from proxy.errors import KAFKA_STORAGE_ERROR, NONE

log = structlog.get_logger()

Partition = tuple[bytes, int]

_MAX_TAILS = 20_000
_MAX_ROWS_PER_TAIL = 256
"""About 200 bytes a row: 1 GiB if every tail were full, which takes 20,000 partitions read at the same time."""


class _Tail:
    """Rows up to the high watermark, oldest first."""

    __slots__ = ("high_watermark", "known_high_watermark", "log_start_offset", "rows")

    def __init__(self, rows: list[Row], log_start_offset: int, high_watermark: int) -> None:
        self.rows = rows
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self.known_high_watermark = high_watermark
        """May be ahead of `high_watermark`, until the announcement comes of what this proxy itself has committed."""


class Coordinates:
    """Finds rows, from memory where it can be sure of them, else by asking the coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._tails: OrderedDict[Partition, _Tail] = OrderedDict()
        self._waiting: dict[Partition, set[asyncio.Event]] = {}
        self._announced: dict[Partition, int] = {}
        """High watermarks announced while someone listens: an answer of `find` may be older than they are."""
        self._following = False

    async def locate(self, requests: Sequence[FindRequest], *, trust_ends: bool) -> list[LogAnswer]:
        """Where each request's rows lie; KAFKA_STORAGE_ERROR where only the coordinator knows, and does not answer.

        `trust_ends`: take a remembered high watermark for the end of the log, as a reader may that has asked the
        coordinator in this same request and has been listening since.
        """
        answers: list[LogAnswer | None] = [self._remembered(request, trust_ends) for request in requests]
        unknown = [place for place, answer in enumerate(answers) if answer is None]
        if unknown:
            try:
                found = await self._coordinator.find([requests[place] for place in unknown])
            except CoordinatorUnavailable as error:
                log.warning("coordinates_unavailable", reason=str(error))
                found = [LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1)] * len(unknown)
            for place, answer in zip(unknown, found, strict=True):
                answers[place] = answer
                self._learn(requests[place], answer)
        return [answer for answer in answers if answer is not None]

    def listen(self, partitions: Iterable[Partition]) -> asyncio.Event:
        """An event that is set when any of the partitions may have more to read; end it with `unlisten`."""
        event = asyncio.Event()
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
        """Take announcements for ever."""
        async for announcement in self._coordinator.announcements():
            if announcement is None:
                self._following = True
                self._tails.clear()
                for events in self._waiting.values():
                    _wake(events)
            else:
                self._take(announcement)

    def note(self, topic_id: bytes, partition: int, log_start_offset: int, high_watermark: int = -1) -> None:
        """What the coordinator has said of a log beside `find`: no reader is told of less from now on.

        Who was answered by this proxy reads here what it was answered, also before the announcement of it has come.
        """
        tail = self._tails.get((topic_id, partition))
        if tail is not None:
            tail.known_high_watermark = max(tail.known_high_watermark, high_watermark)
            self._raise_log_start(tail, log_start_offset)

    def note_committed(self, answers: Iterable[RunAnswer]) -> None:
        """As `note`, of what commits answer."""
        for answer in answers:
            self.note(answer.topic_id, answer.partition, answer.log_start_offset, answer.high_watermark)

    def forget(self, topic_id: bytes) -> None:
        """A topic is gone."""
        for partition in [partition for partition in self._tails if partition[0] == topic_id]:
            del self._tails[partition]

    def _remembered(self, request: FindRequest, trust_ends: bool) -> LogAnswer | None:
        tail = self._tails.get((request.topic_id, request.partition))
        if tail is None or tail.high_watermark < tail.known_high_watermark:
            return None
        if request.offset == tail.high_watermark and trust_ends:
            return LogAnswer(NONE, (), tail.log_start_offset, tail.high_watermark)
        rows = tail.rows
        if not rows or not max(rows[0].base_offset, tail.log_start_offset) <= request.offset < tail.high_watermark:
            return None
        self._tails.move_to_end((request.topic_id, request.partition))
        first = bisect_left(rows, request.offset, key=lambda row: row.last_offset)
        chosen: list[Row] = []
        size = 0
        for row in rows[first:]:
            if chosen and size >= request.max_bytes:
                break
            chosen.append(row)
            size += row.length
        return LogAnswer(NONE, tuple(chosen), tail.log_start_offset, tail.high_watermark)

    def _learn(self, request: FindRequest, answer: LogAnswer) -> None:
        """Begin a tail where an answer reaches the end of the log."""
        partition = request.topic_id, request.partition
        if not self._following or answer.error_code != NONE:
            if answer.error_code != KAFKA_STORAGE_ERROR:
                self._tails.pop(partition, None)
            return
        if answer.high_watermark < self._announced.get(partition, 0):
            return
        end = answer.rows[-1].last_offset + 1 if answer.rows else request.offset
        if end != answer.high_watermark:
            return
        known = self._tails.get(partition)
        if known is not None and known.high_watermark >= answer.high_watermark:
            return
        self._tails[partition] = _Tail(list(answer.rows), answer.log_start_offset, answer.high_watermark)
        if known is not None:
            self.note(*partition, known.log_start_offset, known.known_high_watermark)
        if len(self._tails) > _MAX_TAILS:
            self._tails.popitem(last=False)

    def _take(self, news: Announcement) -> None:
        partition = news.topic_id, news.partition
        tail = self._tails.get(partition)
        if tail is not None and news.high_watermark > tail.high_watermark:
            if news.rows and news.rows[0].base_offset == tail.high_watermark:
                tail.rows.extend(news.rows)
                tail.high_watermark = news.high_watermark
                self._raise_log_start(tail, news.log_start_offset)
                if len(tail.rows) > _MAX_ROWS_PER_TAIL:
                    del tail.rows[: _MAX_ROWS_PER_TAIL // 2]
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
            del tail.rows[: bisect_left(tail.rows, log_start_offset, key=lambda row: row.last_offset)]


def _wake(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()
