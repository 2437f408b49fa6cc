"""The rows of a span as they are now, and their batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from pipeline.compact.plan import Chunk, Log, Span
from pipeline.logs import pages_of_log, patiently
from pipeline.reading import RowUnreadable, coalesce, fetch_ranges, row_batches
from proxy.config import Settings
from proxy.coordinator.interface import Coordinator, Row
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.records.batches import BatchBounds
from proxy.storage.interface import ObjectStorage

GETS = 4
"""Number of GETs of one task at a time."""
MAX_BYTES_IN_FLIGHT = 33_554_432
"""Bytes that one task has read ahead."""

Item = TypeVar("Item")


class Work(NamedTuple):
    """The input of all tasks of a run."""

    settings: Settings
    logs: tuple[Log, ...]
    chunks: tuple[Chunk, ...]
    now_ms: int
    dry_run: bool


class ReadRow(NamedTuple):
    """A row's batches with offsets in place."""

    row: Row
    run: bytearray | memoryview
    bounds: Sequence[BatchBounds]


class Found(NamedTuple):
    """The rows of a span, and the aborted transactions that have records in them."""

    rows: list[Row]
    aborted: frozenset[AbortedTransaction]


async def rows_now(coordinator: Coordinator, log: Log, span: Span) -> Found:
    """Return the rows that hold offsets of the span. Raises LogGone, ShardFenced and CoordinatorUnavailable."""

    async def found() -> Found:
        rows: list[Row] = []
        aborted: set[AbortedTransaction] = set()
        async for page in pages_of_log(coordinator, log.topic_id, log.partition, start=span.start, end=span.end):
            rows += page.rows
            aborted.update(page.aborted)
        return Found(rows, frozenset(aborted))

    return await patiently(found)


async def read_rows(storage: ObjectStorage, rows: Sequence[Row]) -> AsyncIterator[tuple[int, ReadRow | RowUnreadable]]:
    """Yield the batches of rows of any partitions, or the reason for none, each with the row's place among `rows`.

    They come in the order in which their objects are read. Raises StorageError if the storage fails.
    """
    ranges = coalesce(rows)
    async with aclosing(fetch_ranges(storage, ranges, gets=GETS, max_bytes_in_flight=MAX_BYTES_IN_FLIGHT)) as fetched:
        async for range_, data in fetched:
            for place in range_.places:
                row = rows[place]
                if isinstance(data, RowUnreadable):
                    yield place, data.of_row(row)
                    continue
                try:
                    run, bounds = row_batches(data, range_, row)
                except RowUnreadable as error:
                    yield place, error
                else:
                    yield place, ReadRow(row, run, bounds)


def iterate(items: AsyncGenerator[Item, None]) -> Iterator[Item]:
    """The items of an asynchronous generator for code that is not asynchronous, as they come."""
    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    yield runner.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            runner.run(items.aclose())


async def _next(items: AsyncGenerator[Item, None]) -> Item:
    return await anext(items)
