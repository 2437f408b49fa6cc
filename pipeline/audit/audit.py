"""The audit as the driver does it: go through the index, list the objects, have tasks read the bytes, look again.

What it holds in memory: one page of an index, the rows, objects and use of one bucket of segments (see `spill.py`), the
tasks that run, and what looks wrong.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.audit import second_look
from pipeline.audit.books import TopicFigures, Totals, check_bucket
from pipeline.audit.defects import Defect, Log, Suspicion, Suspicions
from pipeline.audit.reads import ReadAnswer, ReadTask, read_tasks
from pipeline.audit.report import AuditReport
from pipeline.audit.second_look import OF_BOTH, OF_BYTES, OF_THE_INDEX, WrongUse, logs_of, logs_of_shard
from pipeline.audit.spill import BUCKETS, ListedObject, PlacedRow, ShardUse, Spill
from pipeline.audit.transactions import AbortMarker, ExpectedAborts, expected_aborts
from pipeline.audit.walk import LogWalk, pages
from pipeline.logs import patiently
from pipeline.progress import Progress
from pipeline.stores import opened
from pipeline.tasks import TaskFailed
from proxy.config import Settings
from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced
from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.wal.segment import SEGMENT_KEY
from proxy.inspection.stores import Stores
from proxy.storage import StorageError

LOGS_PER_CALL = 200


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The scope of an audit, and the repairs that it may make."""

    data: bool = True
    """Read all bytes; else only index, use, and sizes of objects."""
    orphan_age_ms: int | None = None
    """Age above which unnamed objects count as orphans. If None, it is so high that the collection of garbage has had
    its chance: `orphan_age_ms`, two sweeps, and a grace period."""
    settle_ms: int = 5_000
    """How long rows below a log start may stay until they are freed."""
    repair_used_bytes: bool = False
    """Correct wrong counts of use if they are stable."""


@dataclass
class Decided:
    """The result of the second look."""

    defects: list[Suspicion]
    unsettled: int = 0
    """Suspicions of what changed at every look."""
    repaired: int = 0


class Audit:
    """One audit, independent of who runs its tasks: gather, take the answer of each task, decide, report."""

    def __init__(
        self,
        settings: Settings,
        options: AuditOptions,
        progress: Progress,
        *,
        topics: tuple[str, ...] = (),
        dry_run: bool = False,
    ) -> None:
        """Audit `topics`; all if empty."""
        self._settings = settings
        self._options = options
        self._progress = progress
        self._names = topics
        self._dry_run = dry_run
        self._logs: list[Log] = []
        self._first = Suspicions()
        """Suspicions about the index."""
        self._bytes = Suspicions()
        """Suspicions about the bytes that rows name."""
        self._totals = Totals()
        self._reads = ReadAnswer()
        self._unreadable: list[Suspicion] = []
        self._whole = not topics
        self._log_starts: dict[int, int] = {}
        """Log start offsets by the numbers of logs."""

    async def gather(self, spill: Spill) -> None:
        """Index, use and objects, in this order: so an object that is missing is none that came meanwhile."""
        async with opened(self._settings) as stores:
            topics = stores.named(list(self._names))
            self._logs = logs_of(topics, await self._compacted(stores, topics))
            self._totals.topics = {topic.name: TopicFigures(topic.partitions) for topic in topics}
            numbers = {log: number for number, log in enumerate(self._logs)}
            shards = self._settings.redis.shards
            for shard in range(shards):
                try:
                    if self._whole:
                        async for segment, use in second_look.use_of_shard(stores.coordinator, shard):
                            spill.add_use(ShardUse(shard, segment, use))
                    for log in logs_of_shard(self._logs, shard, shards):
                        await self._walk(stores, log, numbers[log], spill)
                except ShardFenced as error:
                    self._whole = False
                    self._unreadable.append(Suspicion(Defect.UNREADABLE, str(error), shard=shard))
            async for stored in stores.storage.objects():
                self._progress.advance(objects=1)
                if named := re.fullmatch(SEGMENT_KEY, stored.key):
                    segment = bytes.fromhex(named[1])
                    spill.add_object(ListedObject(segment, stored.size_bytes, stored.modified_ms))

    async def _compacted(self, stores: Stores, topics: list[DisklessTopic]) -> frozenset[str]:
        """Topics that were compacted some time, whatever their policy is now."""
        logs = logs_of(topics)
        found: set[str] = set()
        for start in range(0, len(logs), LOGS_PER_CALL):
            some = logs[start : start + LOGS_PER_CALL]
            try:
                asked = [(log.topic_id, log.partition) for log in some]
                marks = await patiently(partial(stores.coordinator.rows.compacted, asked))
            except ShardFenced:
                continue  # its logs can't be looked at anyway, and are reported then
            found |= {log.topic for log, mark in zip(some, marks, strict=True) if mark}
        return frozenset(found)

    async def _walk(self, stores: Stores, log: Log, number: int, spill: Spill) -> None:
        walk = LogWalk(log)
        size_bytes = 0
        async for page in pages(stores.coordinator, log):
            if page.log is not None:
                self._log_starts[number] = page.log.log_start_offset
            for row, _ in page.rows:
                if row.is_marker:
                    self._totals.topics[log.topic].rows += 1
                    continue
                aborts = None
                if page.log is not None and row.offsets_in_place:
                    aborts = expected_aborts(page.log, row, page.aborted)
                spill.add_row(PlacedRow(number, page.log is not None, row, aborts))
                size_bytes += row.length
            self._first.add(walk.take(page))
        self._first.add(walk.end())
        if self._options.data:
            self._progress.total(bytes=size_bytes)

    def _rows_to_read(self, spill: Spill) -> Iterator[PlacedRow]:
        """Yield the rows bucket by bucket, as tasks ask for them; missing or too short rows are not read again."""
        settings = self._settings.garbage
        age_ms = self._options.orphan_age_ms
        if age_ms is None:
            age_ms = settings.orphan_age_ms + 2 * settings.orphan_sweep_interval_ms + settings.grace_ms
        before_ms = time.time_ns() // 1_000_000 - age_ms
        shards = self._settings.redis.shards if self._whole else 0
        for bucket in range(BUCKETS):
            found = list(check_bucket(spill, bucket, self._logs, shards, self._totals, orphans_before_ms=before_ms))
            self._bytes.add(found)
            bad = {(suspicion.log, suspicion.row) for suspicion in found if suspicion.log is not None}
            if self._options.data:
                rows = sorted(spill.rows(bucket), key=lambda placed: (placed.row.segment, placed.row.position))
                aborts = spill.aborts(bucket)
                yield from (
                    self._with_aborts(placed, aborts)
                    for placed in rows
                    if placed.lives and (self._logs[placed.log], placed.row) not in bad
                )

    def _with_aborts(self, placed: PlacedRow, aborts: Mapping[tuple[int, int], Sequence[AbortMarker]]) -> PlacedRow:
        if not placed.row.offsets_in_place:
            return placed
        markers = aborts.get((placed.log, placed.row.last_offset), ())
        return placed._replace(aborts=ExpectedAborts(self._log_starts.get(placed.log, 0), tuple(markers)))

    def tasks(self, spill: Spill) -> Iterator[ReadTask]:
        """Yield the tasks as they are requested. Always go through to the end, even if nothing is read."""
        return read_tasks(self._settings, self._rows_to_read(spill))

    def take(self, task: ReadTask, answer: ReadAnswer | TaskFailed) -> None:
        """The answer of one task."""
        self._progress.advance(bytes=task.size_bytes, tasks=1)
        if isinstance(answer, TaskFailed):
            text = f"{len(task.rows)} rows were not read: {answer.text}; run the audit again"
            self._unreadable.append(Suspicion(Defect.UNREADABLE, text))
            return
        self._reads.bytes_read += answer.bytes_read
        self._reads.gets += answer.gets
        for number, batches in answer.batches.items():
            self._totals.topics[self._logs[number].topic].batches += batches
        for placed, defect, text in answer.bad:
            self._bytes.add([Suspicion(defect, text, self._logs[placed.log], placed.row.last_offset, placed.row)])

    async def decide(self) -> Decided:
        """Look again at everything that looked wrong, and repair what may be repaired.

        If one look fails, that is a finding: the others are worth the hours that the audit took.
        """
        findings = Decided(list(self._unreadable))
        async with opened(self._settings, patient=True) as stores:
            stages = [self._decide_index, self._decide_sizes, self._decide_bytes]
            if self._whole:
                stages += [self._decide_use, self._decide_objects]
            for stage in stages:
                try:
                    await stage(stores, findings)
                except (CoordinatorUnavailable, StorageError) as error:
                    text = f"{error}; not all that looked wrong was looked at again: run the audit once more"
                    findings.defects.append(Suspicion(Defect.UNREADABLE, text))
        return findings

    async def _decide_index(self, stores: Stores, findings: Decided) -> None:
        if any(self._first.of(Defect.ROW_BELOW_LOG_START)):
            await asyncio.sleep(self._options.settle_ms / 1000)
        suspicions = self._first.of(*OF_THE_INDEX, *OF_BOTH)
        findings.defects += [one async for one in second_look.of_index(stores.coordinator, suspicions)]

    async def _decide_sizes(self, stores: Stores, findings: Decided) -> None:
        logs = [one.log for one in self._first.of(Defect.WRONG_LOG_SIZE) if one.log is not None]
        async for found in second_look.of_log_size(stores.coordinator, logs):
            if found is None:
                findings.unsettled += 1
            else:
                findings.defects.append(found)

    async def _decide_bytes(self, stores: Stores, findings: Decided) -> None:
        suspicions = self._bytes.of(*OF_BYTES, *OF_BOTH)
        findings.defects += [one async for one in second_look.of_bytes(stores, suspicions)]

    async def _decide_objects(self, stores: Stores, findings: Decided) -> None:
        orphans = {one.segment: one for one in self._bytes.of(Defect.ORPHAN_OBJECT)}
        try:
            findings.defects += [orphans[segment] async for segment in second_look.orphans(stores, list(orphans))]
        except second_look.TooManyWaiting as error:
            findings.defects.append(Suspicion(Defect.UNREADABLE, str(error)))
        findings.defects += [one async for one in second_look.tombstoned_in_use(stores)]

    async def _decide_use(self, stores: Stores, findings: Decided) -> None:
        by_shard: dict[int, set[bytes]] = {}
        for suspicion in self._bytes.of(Defect.WRONG_USED_BYTES):
            by_shard.setdefault(suspicion.shard, set()).add(suspicion.segment)
        for shard, segments in sorted(by_shard.items()):
            found, moving = await second_look.wrong_use(stores, shard, segments)
            findings.unsettled += len(moving)
            for wrong in found:
                if self._options.repair_used_bytes and not self._dry_run and await self._repair(stores, wrong):
                    findings.repaired += 1
                else:
                    findings.defects.append(wrong.suspicion())

    @staticmethod
    async def _repair(stores: Stores, wrong: WrongUse) -> bool:
        """Return whether the use was the same before and after the count, and is right now."""
        return await stores.coordinator.rows.correct_use(wrong.shard, wrong.segment, wrong.recorded, wrong.counted)

    def report(self, found: Decided) -> AuditReport:
        """Return the whole report."""
        report = AuditReport("audit")
        by_defect: Counter[str] = Counter()
        for defect in found.defects:
            by_defect[defect.defect] += 1
            if defect.log is not None:
                self._totals.topics[defect.log.topic].findings += 1
        report.add(found.defects)
        for kind in {**self._first.left_out, **self._bytes.left_out}:
            more = self._first.left_out[kind] + self._bytes.left_out[kind]
            text = f"{more} more look like it and were not checked again; fix the named ones, and run the audit again"
            report.add([Suspicion(kind, text)])
        totals = self._totals
        report.figures = {
            "topics_checked": len(totals.topics),
            "partitions_checked": len(self._logs),
            "rows_checked": sum(topic.rows for topic in totals.topics.values()),
            "batches_checked": sum(topic.batches for topic in totals.topics.values()),
            "bytes_read": self._reads.bytes_read,
            "gets": self._reads.gets,
            "objects": totals.objects,
            "bytes_stored": totals.bytes_stored,
            "bytes_named_by_rows": totals.bytes_named,
            "suspicions": len(self._first) + len(self._bytes),
            "suspicions_unsettled": found.unsettled,
            "use_repaired": found.repaired,
            "defects": dict(sorted(by_defect.items())),
            "topics": {name: vars(topic) for name, topic in sorted(totals.topics.items())},
        }
        if self._whole:
            report.figures["objects_unnamed"] = totals.unnamed_objects
            report.figures["bytes_unnamed"] = totals.unnamed_bytes
        return report
