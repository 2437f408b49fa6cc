"""Walk through the index of a log page by page, and check what must hold in it.

The store returns a page atomically, so a disagreement within one page is a defect. A disagreement between two pages may
be a change between them, and is a suspicion.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from pipeline.audit.defects import Defect, Log, Suspicion
from pipeline.audit.transactions import check_transactions
from pipeline.logs import patiently
from proxy.coordinator.interface import Coordinator
from proxy.coordinator.interface_rewriting import IndexedRow, IndexPage, LogState

END = -1


async def pages(coordinator: Coordinator, log: Log) -> AsyncIterator[IndexPage]:
    """All pages of a log's index. Raises CoordinatorUnavailable."""
    from_offset = 0
    while True:
        page = await page_at(coordinator, log, from_offset)
        yield page
        if page.next_offset == END:
            return
        from_offset = page.next_offset


async def page_at(coordinator: Coordinator, log: Log, offset: int) -> IndexPage:
    """Return the page that begins at an offset. Raises CoordinatorUnavailable."""
    return await patiently(partial(coordinator.rows.index_page, log.topic_id, log.partition, offset))


class LogWalk:
    """Takes the pages of one log from its beginning on, and reports what is wrong."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._previous: IndexedRow | None = None
        self._first: LogState | None = None
        self._last: LogState | None = None
        self.rows = 0
        self.size_bytes = 0
        self._appended_rows = 0
        """Number of these rows that were appended after the first page."""
        self._appended_bytes = 0

    def take(self, page: IndexPage) -> Iterator[Suspicion]:
        """The next page, of a log that lives."""
        state = page.log
        if state is None:
            return
        if self._first is None:
            self._first = state
        self._last = state
        for indexed in page.rows:
            self.rows += 1
            self.size_bytes += indexed.row.length
            if indexed.row.base_offset >= self._first.high_watermark:
                self._appended_rows += 1
                self._appended_bytes += indexed.row.length
        at_beginning = self._previous is None
        yield from check_page(self.log, page, self._previous, at_beginning=at_beginning)
        if page.rows:
            self._previous = page.rows[-1]

    def end(self) -> Iterator[Suspicion]:
        """After the last page."""
        state = self._last
        if state is not None and (self.size_bytes, self.rows) != (state.size_bytes, state.rows):
            yield Suspicion(
                Defect.WRONG_LOG_SIZE,
                f"the log is said to have {state.size_bytes} bytes in {state.rows} rows; its index has "
                f"{self.size_bytes} bytes in {self.rows} rows",
                self.log,
            )

    @property
    def saw_appends_only(self) -> bool:
        """Return whether nothing was freed or replaced between the first page and the last: then the sums are exact."""
        first, last = self._first, self._last
        return (
            first is not None
            and last is not None
            and first.log_start_offset == last.log_start_offset
            and last.rows - first.rows == self._appended_rows
            and last.size_bytes - first.size_bytes == self._appended_bytes
        )


def check_page(
    log: Log, page: IndexPage, previous: IndexedRow | None, *, at_beginning: bool = False
) -> Iterator[Suspicion]:
    """Yield what is wrong in one page, and between it and the row before it.

    `at_beginning` means that the page has the first rows of the index. Without that, and without `previous`, the first
    row is compared with nothing else.
    """
    state = page.log
    if state is None:
        return
    expected = previous.row.last_offset + 1 if previous is not None else None
    if at_beginning:
        expected = state.log_start_offset
    for indexed in page.rows:
        row = indexed.row
        yield from _check_row(log, state, indexed, previous)
        if row.last_offset >= state.log_start_offset:
            # An offset from which a page shows both sides of what is odd.
            look_from = previous.row.last_offset if previous is not None else 0
            if expected is not None and row.base_offset > max(expected, state.log_start_offset):
                yield from _gap(log, max(expected, state.log_start_offset), row.base_offset, look_from)
            elif previous is not None and row.base_offset <= previous.row.last_offset:
                yield Suspicion(
                    Defect.OVERLAPPING_ROWS,
                    f"offsets {row.base_offset} to {row.last_offset} follow {previous.row.base_offset} to "
                    f"{previous.row.last_offset}",
                    log,
                    look_from,
                    row,
                )
            expected = row.last_offset + 1
        previous = indexed
    if page.next_offset == END:
        yield from _check_end(log, state, previous, expected)
    yield from check_transactions(log, page, at_beginning=at_beginning)


def _check_row(log: Log, state: LogState, indexed: IndexedRow, previous: IndexedRow | None) -> Iterator[Suspicion]:
    row, running_ms = indexed
    if row.base_offset > row.last_offset:
        text = f"a row of offsets {row.base_offset} to {row.last_offset}"
        yield Suspicion(Defect.WRONG_OFFSETS, text, log, row.last_offset, row)
    if row.last_offset < state.log_start_offset:
        text = f"offsets {row.base_offset} to {row.last_offset} lie before the log start {state.log_start_offset}"
        yield Suspicion(Defect.ROW_BELOW_LOG_START, text, log, row.last_offset, row)
    if row.last_offset >= state.high_watermark:
        text = f"offsets {row.base_offset} to {row.last_offset} reach the high watermark {state.high_watermark}"
        yield Suspicion(Defect.ROW_BEYOND_HIGH_WATERMARK, text, log, row.last_offset, row)
    before_ms = previous.running_maximum_ms if previous is not None else row.max_timestamp_ms
    if running_ms < max(row.max_timestamp_ms, before_ms):
        text = (
            f"the running maximum timestamp is {running_ms} ms at offset {row.last_offset}, after {before_ms} ms and "
            f"with {row.max_timestamp_ms} ms in the row"
        )
        look_from = previous.row.last_offset if previous is not None else row.last_offset
        yield Suspicion(Defect.WRONG_MAX_TIMESTAMP, text, log, look_from, row)


def _check_end(log: Log, state: LogState, last: IndexedRow | None, expected: int | None) -> Iterator[Suspicion]:
    if expected is not None and max(expected, state.log_start_offset) < state.high_watermark:
        look_from = last.row.last_offset if last is not None else 0
        yield from _gap(log, max(expected, state.log_start_offset), state.high_watermark, look_from)
    if last is not None and last.running_maximum_ms > state.max_timestamp_ms:
        text = (
            f"the log's maximum timestamp is {state.max_timestamp_ms} ms, the running maximum of its last row "
            f"{last.running_maximum_ms} ms"
        )
        yield Suspicion(Defect.WRONG_MAX_TIMESTAMP, text, log, last.row.last_offset, last.row)


def _gap(log: Log, from_offset: int, to_offset: int, look_from: int) -> Iterator[Suspicion]:
    if not log.leaves_gaps:
        text = f"no row holds the offsets from {from_offset} to {to_offset - 1}"
        yield Suspicion(Defect.GAP, text, log, look_from)
