"""The plan of a compaction: which logs, how far, and in which pieces. Made on the driver before any record is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.compact.policy import Cleanable, CompactionConfigs, configs_of, first_dirty_offset
from pipeline.compact.records import NO_TIMESTAMP
from pipeline.logs import LogGone, rows_of_log
from pipeline.reading import RowUnreadable, place_batches
from proxy.coordinator.interface import Coordinator, Row
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import segment_key
from proxy.inspection.stores import Stores
from proxy.records.batches import read_header
from proxy.storage.interface import ObjectStorage, StorageError

MAX_CHUNK_ROWS = 50_000
"""However small they are: a task has them in memory."""
MAX_CHUNK_SPANS = 5_000
"""Logs that share a task, however small they are."""


class Log(NamedTuple):
    """One partition that is to be compacted."""

    topic: str
    topic_id: bytes
    partition: int
    end_offset: int
    """Exclusive: up to there it can be cleaned, to the last stable offset at most."""
    delete_retention_ms: int

    @property
    def name(self) -> str:
        """Return the name for people."""
        return f"{self.topic}-{self.partition}"


class Span(NamedTuple):
    """Neighbouring rows of one log."""

    log: int
    """Its place in the plan."""
    start: int
    end: int
    """Exclusive: the offsets of whole rows, as the plan found them."""
    size_bytes: int
    rows: int


Chunk = tuple[Span, ...]
"""Rows that one task rewrites into one object: at most one span of each log. Chunks ascend by log and then offset."""


@dataclass
class Plan:
    """All that is to be done."""

    logs: list[Log] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    logs_not_due: int = 0
    """Number of logs whose share of never compacted bytes is not above `min.cleanable.dirty.ratio`."""
    logs_empty: int = 0
    """Number of logs without anything that can be cleaned."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches that are to be read."""
        return sum(span.size_bytes for chunk in self.chunks for span in chunk)


async def plan_logs(
    stores: Stores,
    topics: Sequence[DisklessTopic],
    *,
    now_ms: int,
    chunk_bytes: int,
    force: bool,
    only: Iterable[tuple[bytes, int]] | None = None,
) -> Plan:
    """Return a plan for these topics, which are compacted ones.

    `force`: also logs that are not due. `only`: of these logs (topic ID, partition) alone. Raises ShardFenced and
    CoordinatorUnavailable; topics that are deleted meanwhile are left out. Rows are looked at a page at a time.
    """
    plan = Plan()
    wanted = None if only is None else set(only)
    chunker = Chunker(chunk_bytes)
    for topic in topics:
        configs = configs_of(topic.configs)
        for partition in range(topic.partitions):
            if wanted is not None and (topic.topic_id, partition) not in wanted:
                continue
            try:
                spans = await _plan_log(stores, topic, partition, configs, plan, chunk_bytes, now_ms, force)
            except LogGone:
                continue
            for span in spans:
                plan.chunks += chunker.add(span)
    plan.chunks += chunker.end()
    return plan


class Chunker:
    """Puts spans together until they are worth a task."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._spans: list[Span] = []

    def add(self, span: Span) -> Iterator[Chunk]:
        """Add a span; yield the chunk before it if that has no room for it."""
        size_bytes = sum(one.size_bytes for one in self._spans) + span.size_bytes
        rows = sum(one.rows for one in self._spans) + span.rows
        if size_bytes > self._chunk_bytes or rows > MAX_CHUNK_ROWS or len(self._spans) == MAX_CHUNK_SPANS:
            yield from self.end()
        self._spans.append(span)

    def end(self) -> Iterator[Chunk]:
        """Yield the rest."""
        if self._spans:
            yield tuple(self._spans)
            self._spans = []


class Cutter:
    """Cuts the rows of one log, in their order, into spans."""

    def __init__(self, log: int, span_bytes: int) -> None:
        self._log = log
        self._span_bytes = span_bytes
        self._start = self._end = self._bytes = self._rows = 0
        self._spans: list[Span] = []

    def add(self, row: Row) -> None:
        """The next row."""
        if self._rows and (self._bytes + row.length > self._span_bytes or self._rows == MAX_CHUNK_ROWS):
            self._cut()
        if not self._rows:
            self._start = row.base_offset
        self._end = row.last_offset + 1
        self._bytes += row.length
        self._rows += 1

    def spans(self) -> list[Span]:
        """All of them, after the last row."""
        if self._rows:
            self._cut()
        return self._spans

    def _cut(self) -> None:
        self._spans.append(Span(self._log, self._start, self._end, self._bytes, self._rows))
        self._bytes = self._rows = 0


async def _plan_log(
    stores: Stores,
    topic: DisklessTopic,
    partition: int,
    configs: CompactionConfigs,
    plan: Plan,
    chunk_bytes: int,
    now_ms: int,
    force: bool,
) -> list[Span]:
    """Return the spans of one log, none if it is not to be compacted. Adds it to the plan's logs."""
    log, coordinator = (topic.topic_id, partition), stores.coordinator
    (compacted,) = await coordinator.rows.compacted([log])
    (described,) = await coordinator.describe(topic.topic_id, [partition])
    if described is None:
        raise LogGone(f"the log of {topic.name}-{partition} does not exist any more")
    first_dirty = first_dirty_offset(compacted, described.log_start_offset, described.high_watermark)
    cleanable = Cleanable(configs, first_dirty=first_dirty, now_ms=now_ms)
    cutter = Cutter(len(plan.logs), chunk_bytes)
    await _add_rows(coordinator, topic.topic_id, partition, described.last_stable_offset, cleanable, cutter)
    spans = cutter.spans()
    if not spans:
        plan.logs_empty += 1
        return []
    if not force and cleanable.joined is not None and cleanable.wants_first_time:
        cleanable.begins_at(await _first_dirty_ms(stores.storage, cleanable.joined, first_dirty))
    if not force and not cleanable.is_due:
        plan.logs_not_due += 1
        return []
    plan.logs.append(Log(topic.name, *log, cleanable.end_offset, configs.delete_retention_ms))
    return spans


async def _add_rows(
    coordinator: Coordinator, topic_id: bytes, partition: int, end: int, cleanable: Cleanable, cutter: Cutter
) -> None:
    async for rows in rows_of_log(coordinator, topic_id, partition, end=end):
        for row in rows:
            # Rows are cleaned as a whole: in one that goes beyond the end, a transaction is open.
            if row.last_offset >= end or not cleanable.takes(row):
                return
            cutter.add(row)


async def _first_dirty_ms(storage: ObjectStorage, row: Row, first_dirty: int) -> int:
    """Return the time of the first batch of a merged row that was never cleaned; NO_TIMESTAMP if it can't be read.

    That is reported when the log is due.
    """
    try:
        data = await storage.fetch(segment_key(row.segment), row.position, row.position + row.length)
        bounds = place_batches(memoryview(data), row)
    except (StorageError, RowUnreadable):
        return NO_TIMESTAMP
    first = next((batch for batch in bounds if batch.last_offset >= first_dirty), None)
    return NO_TIMESTAMP if first is None else read_header(data, first.position).max_timestamp_ms
