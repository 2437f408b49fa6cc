"""Decide which markers of transactions compaction removes, as Kafka's log cleaner does. Sans-io.

This follows `CleanedTransactionMetadata` and `Cleaner.cleanInto` of Kafka 4.x. A marker may go when no batch of its
transaction was left *before* the run. Then it gets a delete horizon, as tombstones do (KIP-534), and the first run
after that removes it. The transactions of a producer follow one another: so a marker has a batch left if the batch of
its producer before it is no marker.

A log is compacted in spans, by several tasks. What is before a span is known from the tasks that read the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeline.aborted import Aborted
from pipeline.compact.records import Kept, batch_of, delete_horizon_ms, emptied, moved, records_of
from pipeline.compact.rewrite import Cleaned, Cleaning, Event, last_sequence
from proxy.coordinator.interface_rewriting import MAX_ENDED_PER_SWAP
from proxy.records.batches import BatchHeader, read_header

LastEvents = dict[int, int]
"""Last transactional batch of each producer in a span: offset << 1, | 1 if it is a marker."""


class Place(NamedTuple):
    """A span: the place of its log in the plan, and its first offset."""

    log: int
    start: int


def note_event(events: LastEvents, header: BatchHeader, offset: int) -> None:
    """Note a batch of a span, in any order."""
    if header.is_transactional and not (header.is_control and not header.record_count):
        code = offset << 1 | header.is_control
        events[header.producer_id] = max(code, events.get(header.producer_id, code))


def left_before(spans: Iterable[Place], events: Mapping[Place, LastEvents]) -> dict[Place, frozenset[int]]:
    """Return, by span, the producers that have batches of a transaction before it whose marker is not before it."""
    found: dict[Place, frozenset[int]] = {}
    last: dict[int, LastEvents] = {}
    for place in sorted(spans):
        of_log = last.setdefault(place.log, {})
        if left := frozenset(producer_id for producer_id, code in of_log.items() if not code & 1):
            found[place] = left
        of_log |= events.get(place, {})
    return found


def without_markers(
    rows: Sequence[Cleaned], before: Iterable[int], aborted: Aborted, cleaning: Cleaning
) -> Iterator[Cleaned]:
    """Yield the rows of a span, in their order, without the markers that may go. `before`: see `left_before`."""
    left = set(before)
    for row in rows:
        alone = set(_alone(row.events, left))
        yield _cleaned(row, alone, aborted, cleaning) if alone else row


def _alone(events: Iterable[Event], left: set[int]) -> Iterator[int]:
    """Yield the offsets of markers without a batch of their transactions; `left` is changed."""
    for event in events:
        if event.is_empty:
            yield event.offset
        elif not event.is_marker:
            left.add(event.producer_id)
        elif event.producer_id in left:
            left.discard(event.producer_id)
        else:
            yield event.offset


def _cleaned(row: Cleaned, alone: set[int], aborted: Aborted, cleaning: Cleaning) -> Cleaned:
    parts: list[memoryview | bytes] = []
    ended: list[int] = []
    is_changed, last_offset, position = False, -1, 0
    view = memoryview(row.data)
    while position < len(view):
        header = read_header(view, position)
        batch = view[position : position + header.length]
        base_offset = int.from_bytes(batch[:8], "big")
        left: memoryview | bytes | None = batch
        # One run removes a bounded number of a row's; the rest is left to the next.
        if header.is_control and base_offset in alone and len(ended) < MAX_ENDED_PER_SWAP:
            left = _marker(batch, header, base_offset, cleaning)
            is_gone = left is None or not read_header(left).record_count
            if is_gone and aborted.ends_at(base_offset):
                ended.append(base_offset)
        is_changed = is_changed or left is not batch
        if left is not None:
            parts.append(left)
            last_offset = base_offset + header.last_offset_delta
        position += header.length
    if not is_changed:
        return row
    return row._replace(data=b"".join(parts), last_offset=last_offset, changed=True, ended=tuple(ended))


def _marker(batch: memoryview, header: BatchHeader, base_offset: int, cleaning: Cleaning) -> memoryview | bytes | None:
    """Return what is left of a marker without a transaction: with a delete horizon, without its record, or nothing."""
    if header.record_count:
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is None:
            set_ms = cleaning.now_ms + cleaning.delete_retention_ms
            kept = Kept(records_of(batch, header), header.record_count, 0)
            with_horizon, _ = moved(kept, set_ms - header.base_timestamp_ms)
            return batch_of(batch, header, with_horizon, horizon_ms=set_ms)
        if horizon_ms > cleaning.now_ms:
            return batch
    is_last = base_offset + header.last_offset_delta + 1 == cleaning.end_offset
    if not is_last and last_sequence(header) not in cleaning.last_sequences:
        return None
    return emptied(batch, header) if header.record_count else batch
