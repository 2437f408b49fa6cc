"""Open and aborted transactions of a page of an index, and markers in merged rows, held against each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from pipeline.audit.defects import Defect, Log, Suspicion
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_rewriting import IndexPage, LogState, OpenTransaction
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.coordinator.packing_transactions import marker_of
from proxy.inspection.records import end_marker, read_records
from proxy.records.batches import BatchBounds, RecordsError, read_header

AbortMarker = tuple[int, int]
"""The marker of an aborted transaction: offset and producer ID."""


class ExpectedAborts(NamedTuple):
    """The markers that a merged row has according to the list of aborted transactions."""

    from_offset: int
    """The log start: before it there is no list."""
    markers: tuple[AbortMarker, ...]


def check_transactions(log: Log, page: IndexPage, *, at_beginning: bool) -> Iterator[Suspicion]:
    """Yield what is wrong with the transactions of one page, which the store returns atomically."""
    state = page.log
    if state is None:
        return
    if at_beginning:
        yield from _check_last_stable(log, state)
    rows = [indexed.row for indexed in page.rows]
    for opened in page.open:
        yield from _check_open(log, state, rows, opened)
    ended = {one.last_offset: one for one in page.aborted}
    for aborted in page.aborted:
        yield from _check_aborted(log, state, rows, aborted)
    for row in rows:
        if row.is_marker and row.base_offset >= state.log_start_offset:
            marker, entry = marker_of(row), ended.get(row.base_offset)
            listed = None if entry is None else entry.producer_id
            if listed != (None if marker.committed else marker.producer_id):
                text = f"the marker at offset {row.base_offset} does not agree with the list of aborted transactions"
                yield Suspicion(Defect.WRONG_ABORTED_TRANSACTION, text, log, row.base_offset, row)


def expected_aborts(state: LogState, row: Row, aborted: Sequence[AbortedTransaction]) -> ExpectedAborts:
    """Return the markers that a merged row must have; `aborted` as in a page, in order."""
    first = bisect_left(aborted, row.base_offset, key=attrgetter("last_offset"))
    end = bisect_left(aborted, row.last_offset + 1, key=attrgetter("last_offset"))
    return ExpectedAborts(
        state.log_start_offset, tuple((one.last_offset, one.producer_id) for one in aborted[first:end])
    )


def wrong_aborts(run: memoryview | bytearray, bounds: Sequence[BatchBounds], expected: ExpectedAborts) -> str:
    """Return how the markers in a row's bytes differ from the expected ones; empty if they don't."""
    found = {one for one in _aborts(run, bounds) if one[0] >= expected.from_offset}
    wanted = {one for one in expected.markers if one[0] >= expected.from_offset}
    if found == wanted:
        return ""
    offset, producer_id = min(found ^ wanted)
    has, lacks = ("the bytes", "the list") if (offset, producer_id) in found else ("the list", "the bytes")
    return f"{has} of aborted transactions: producer {producer_id} ends at offset {offset}; {lacks} do not have it"


def _aborts(run: memoryview | bytearray, bounds: Sequence[BatchBounds]) -> Iterator[AbortMarker]:
    for batch in bounds:
        header = read_header(run, batch.position)
        if not header.is_control:
            continue
        try:
            records = list(read_records(memoryview(run)[batch.position : batch.position + batch.length], header))
        except RecordsError:
            continue
        if any(marker is not None and not marker.committed for marker in map(end_marker, records)):
            yield batch.base_offset, header.producer_id


def _check_last_stable(log: Log, state: LogState) -> Iterator[Suspicion]:
    expected = state.oldest_open_offset if state.oldest_open_offset >= 0 else state.high_watermark
    if state.last_stable_offset != expected:
        what = (
            "its oldest open transaction begins" if state.oldest_open_offset >= 0 else "no transaction is open, it ends"
        )
        text = f"the last stable offset is {state.last_stable_offset}; {what} at offset {expected}"
        yield Suspicion(Defect.WRONG_LAST_STABLE_OFFSET, text, log)


def _check_open(log: Log, state: LogState, rows: Sequence[Row], opened: OpenTransaction) -> Iterator[Suspicion]:
    first = opened.first_offset
    wrong = ""
    if first != opened.first_of_producer:
        wrong = f"the producer's state says {opened.first_of_producer}"
    elif first >= state.high_watermark or (first >= state.log_start_offset and _row_of(rows, first) is None):
        wrong = "no row has that offset"
    if wrong:
        text = f"the open transaction of producer {opened.producer_id} begins at offset {first}; {wrong}"
        yield Suspicion(Defect.WRONG_OPEN_TRANSACTION, text, log, first)


def _check_aborted(log: Log, state: LogState, rows: Sequence[Row], aborted: AbortedTransaction) -> Iterator[Suspicion]:
    last = aborted.last_offset
    row = _row_of(rows, last)
    wrong = ""
    if last < state.log_start_offset:
        wrong = f"the log begins at {state.log_start_offset}"
    elif row is None:
        wrong = "no row has its marker"
    elif aborted.first_offset >= last:
        wrong = f"it begins at {aborted.first_offset}"
    elif not row.offsets_in_place and not row.is_marker:
        wrong = "that offset has no marker"
    if wrong:
        text = f"the aborted transaction of producer {aborted.producer_id} ends at offset {last}; {wrong}"
        yield Suspicion(Defect.WRONG_ABORTED_TRANSACTION, text, log, last)


def _row_of(rows: Sequence[Row], offset: int) -> Row | None:
    place = bisect_left(rows, offset, key=attrgetter("last_offset"))
    return rows[place] if place < len(rows) and rows[place].base_offset <= offset else None
