"""Rows beyond those that a reader asked for, if it goes on where it stopped.

A reader that is far behind would ask the coordinator for a few rows again and again. Its second request is for more
rows than it needs, and the next ones are answered from these. They are never the authority on what does *not* exist,
and nothing is added to them: what becomes of the log after the answer is for the coordinator to say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

from proxy.coordinator.interface import FindRequest, LogAnswer, Row
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.protocol.errors import NONE

Partition = tuple[bytes, int]

_MOST_TIMES = 8
"""Bytes of records that are asked for, in proportion to the reader's own limit."""
_TIMES_IN_ALL = 16
"""Sum of that over the logs of one call, which returns a limited number of rows in all."""
_MAX_STRETCHES = 1_000
"""Each has no more rows than `find` returns (`MAX_ROWS_PER_FIND`), of about 200 bytes."""


class _Stretch:
    """Rows of one log, not up to its end, as the coordinator returned them."""

    __slots__ = ("answer", "is_decided", "learned_s")

    def __init__(self, answer: LogAnswer, learned_s: float) -> None:
        self.answer = answer
        self.learned_s = learned_s
        self.is_decided = answer.rows[-1].last_offset < answer.last_stable_offset
        """Whether every transaction in the rows had ended: only then are all the aborted ones known."""

    def holds(self, offset: int) -> bool:
        """Return whether the offset is one of the rows', or the next one after them."""
        rows = self.answer.rows
        return rows[0].base_offset <= offset <= rows[-1].last_offset + 1


class RowsAhead:
    """The newest stretch of each log that somebody reads far from its end."""

    def __init__(self) -> None:
        self._stretches: OrderedDict[Partition, _Stretch] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of logs of which rows are kept."""
        return len(self._stretches)

    def widened(self, requests: Sequence[FindRequest]) -> list[FindRequest]:
        """Return the requests of one call, for more rows if a reader goes on where the log was read last."""
        times = min(_MOST_TIMES, _TIMES_IN_ALL // len(requests))
        if times < 2:
            return list(requests)
        return [
            request._replace(max_bytes=times * request.max_bytes) if self._goes_on(request) else request
            for request in requests
        ]

    def _goes_on(self, request: FindRequest) -> bool:
        stretch = self._stretches.get((request.topic_id, request.partition))
        return stretch is not None and stretch.holds(request.offset)

    def keep(self, request: FindRequest, answer: LogAnswer, now_s: float) -> LogAnswer:
        """Keep the rows of an answer, unless they reach the end of the log; return those that were asked for."""
        partition = request.topic_id, request.partition
        self._stretches.pop(partition, None)
        if answer.error_code != NONE or not answer.rows:
            return answer
        if answer.rows[-1].last_offset + 1 < answer.high_watermark:
            self._stretches[partition] = _Stretch(answer, now_s)
            if len(self._stretches) > _MAX_STRETCHES:
                self._stretches.popitem(last=False)
        return _answer_of(answer, rows_for(answer.rows, 0, request.max_bytes))

    def find(
        self, request: FindRequest, *, not_before_s: float, committed: bool, fewer: bool = False
    ) -> LogAnswer | None:
        """Return the rows for a request, if all that it asks for is known; None if not. `fewer`: if some of it is.

        Rows that the coordinator returned before `not_before_s` do not count. A reader of committed records gets none
        if a transaction was open in them.
        """
        partition = request.topic_id, request.partition
        stretch = self._stretches.get(partition)
        if stretch is None or stretch.learned_s < not_before_s:
            return None
        answer, offset = stretch.answer, request.offset
        if not stretch.holds(offset) or (committed and not stretch.is_decided):
            return None
        first = bisect_left(answer.rows, offset, key=lambda row: row.last_offset)
        chosen = rows_for(answer.rows, first, request.max_bytes)
        if not chosen or (not fewer and sum(row.length for row in chosen) < request.max_bytes):
            return None
        self._stretches.move_to_end(partition)
        return _answer_of(answer, chosen)

    def around(self, partition: Partition, offset: int, *, not_before_s: float) -> Sequence[Row]:
        """Return the rows that the coordinator returned since then, if they have that of an offset."""
        stretch = self._stretches.get(partition)
        if stretch is None or stretch.learned_s < not_before_s or not stretch.holds(offset):
            return ()
        return stretch.answer.rows

    def note(self, partition: Partition, log_start_offset: int, high_watermark: int, last_stable_offset: int) -> None:
        """Note bounds of a log. If its start has moved since the coordinator returned the rows, they are forgotten."""
        stretch = self._stretches.get(partition)
        if stretch is None:
            return
        answer = stretch.answer
        if log_start_offset > answer.log_start_offset:
            del self._stretches[partition]
        else:
            stretch.answer = answer._replace(
                high_watermark=max(answer.high_watermark, high_watermark),
                last_stable_offset=max(answer.last_stable_offset, last_stable_offset),
            )

    def forget(self, topic_id: bytes | None = None) -> None:
        """Forget the rows of a topic, or of all topics."""
        gone = [partition for partition in self._stretches if topic_id in (None, partition[0])]
        for partition in gone:
            del self._stretches[partition]


def rows_for(rows: Sequence[Row], first: int, max_bytes: int) -> list[Row]:
    """Return the rows from the given one on until they have so many bytes; one at least, if there is one."""
    chosen: list[Row] = []
    size = 0
    for row in rows[first:]:
        if chosen and size >= max_bytes:
            break
        chosen.append(row)
        size += row.length
    return chosen


def aborted_in(aborted: Sequence[AbortedTransaction], rows: Sequence[Row]) -> tuple[AbortedTransaction, ...]:
    """Return the transactions that may have records in the rows."""
    if not aborted or not rows:
        return ()
    first, end = rows[0].base_offset, rows[-1].last_offset + 1
    return tuple(one for one in aborted if one.last_offset >= first and one.first_offset < end)


def _answer_of(answer: LogAnswer, rows: Sequence[Row]) -> LogAnswer:
    return answer._replace(rows=tuple(rows), aborted=aborted_in(answer.aborted, rows))
