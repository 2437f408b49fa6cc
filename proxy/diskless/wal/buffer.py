"""The WAL buffer: batches wait here for their segment; a segment is uploaded, then committed, then answered.

The order is PUT, commit, answer (KIP-1163). Uploads run in parallel. Commits keep the order of arrival per partition,
so a slow PUT delays only the partitions of its segment. A failed upload leaves at most garbage in the bucket.

The caller gets an `Outcome` per batch, through the callback that came with it:

- the coordinator's answer, which may itself be an error of Kafka's producer rules;
- KAFKA_STORAGE_ERROR if the batch surely was not committed. The later batches of that partition that are already
  here then fail at once: if committed, they would leave a hole in a producer's sequence that its retry could not fill.
  Batches of the same producer that come before the retry fail too (`failures.py`);
- REQUEST_TIMED_OUT if the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from proxy.coordinator.interface import (
    MAX_BATCHES_PER_RUN,
    Coordinator,
    CoordinatorUnavailable,
    PartitionRun,
    RunAnswer,
    ShardFenced,
)
from proxy.coordinator.interface_transactions import NO_MARKERS
from proxy.coordinator.lateness import no_later
from proxy.diskless.wal.ending import SegmentTimer
from proxy.diskless.wal.failures import FailedBatches
from proxy.diskless.wal.hedge import Hedge
from proxy.diskless.wal.holds import Holds
from proxy.diskless.wal.interface import SegmentCache
from proxy.diskless.wal.outcome import Outcome, Settle, producer_error, report
from proxy.diskless.wal.pace import PutBudget
from proxy.diskless.wal.recent import RecentSegments
from proxy.diskless.wal.segment import BuiltSegment
from proxy.diskless.wal.waiting import Partition, WaitingSegment
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED
from proxy.records.batches import BatchHeader
from proxy.storage.interface import ObjectStorage, StorageError
from proxy.telemetry.stats import Stats
from proxy.telemetry.throttled_log import ThrottledLog
from proxy.wire.steps import Steps, in_slices

log = structlog.get_logger()

_RETRIABLE = "producers get a retriable error"
_UNSEEN = frozenset({REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED})
"""Errors of runs that the coordinator did not look at."""
_RETRY_FIRST_S = 0.02
_RETRY_LONGEST_S = 1.0


class WalBuffer:
    """Collects batches into segments and sees them through.

    A segment ends with `interval_s` or `max_bytes`, whichever is reached first (`diskless.append.commit.interval.ms`,
    `diskless.append.buffer.max.bytes`), or with MAX_BATCHES_PER_RUN batches of one partition. It ends earlier if
    `budget` has a token and fewer than `max_underway` segments are under way. `max_uploads` run at a time. A commit
    without an answer is retried for `commit_timeout_s`. `out_of_order_hold_s` and `max_held_batches`: see `Holds`.

    However long this process stood still, a segment is no longer committed after `max_age_s` since its upload began,
    because its object may have been deleted as one that nobody commits. Nor is it committed after `grace_s` since the
    first try, because what that try committed may have been freed again, and the object deleted. 0 means no limit.
    `hedge_after_s`: see `Hedge`. `heard` is called with the answers of commits before any callback.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        coordinator: Coordinator,
        cache: SegmentCache,
        stats: Stats,
        *,
        interval_s: float,
        budget: PutBudget,
        max_underway: int,
        max_bytes: int,
        max_uploads: int,
        commit_timeout_s: float,
        out_of_order_hold_s: float,
        max_held_batches: int,
        max_age_s: float,
        grace_s: float,
        hedge_after_s: float = 0.0,
        heard: Callable[[Sequence[RunAnswer]], None] = lambda answers: None,
    ) -> None:
        self.hedge = Hedge(storage, stats, budget, after_s=hedge_after_s)
        self._coordinator = coordinator
        self._cache = cache
        self._stats = stats
        self.timer = SegmentTimer(
            self.flush, lambda: len(self._underway), budget, interval_s=interval_s, max_underway=max_underway
        )
        self.max_bytes = max_bytes
        self.commit_timeout_s = commit_timeout_s
        self._max_age_ms = round(1000 * max_age_s)
        self._grace_ms = round(1000 * grace_s)
        self._uploads = asyncio.Semaphore(max_uploads)
        self._heard = heard
        self.holds = Holds(coordinator, hold_s=out_of_order_hold_s, max_batches=max_held_batches, heard=heard)
        self.recent = RecentSegments()
        self.failures = FailedBatches()
        self._open: WaitingSegment | None = None
        self._underway: dict[int, WaitingSegment] = {}
        self._numbers = 0
        self._told = asyncio.Event()
        """Set for a moment when batches of a segment were answered."""
        self._throttled_log = ThrottledLog(lambda: asyncio.get_running_loop().time())

    def allow_uploads(self, most: int) -> None:
        """Allow this many uploads at a time from now on, in addition to those under way."""
        self._uploads = asyncio.Semaphore(most)

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes of the segment that is being filled."""
        return self._open.builder.bytes_buffered if self._open else 0

    @property
    def segments_underway(self) -> int:
        """Uploading or committing."""
        return len(self._underway)

    def append(
        self,
        topic_id: bytes,
        partition: int,
        batch: memoryview,
        header: BatchHeader,
        settle: Settle,
        *,
        log_append_time: bool = False,
        patience_s: float = 0.0,
        markers_from: int = NO_MARKERS,
    ) -> None:
        """See `Wal`."""
        if self.failures.comes_too_early(
            topic_id, partition, header.producer_id, header.producer_epoch, header.base_sequence
        ):
            report([(settle, Outcome(KAFKA_STORAGE_ERROR))])
            return
        segment = self._open
        if segment is None:
            self._numbers += 1
            segment = self._open = WaitingSegment(self._numbers)
        batches = segment.add(
            (topic_id, partition), batch, header, settle, log_append_time=log_append_time, markers_from=markers_from
        )
        self.timer.batch_added(patience_s)
        if segment.builder.bytes_buffered >= self.max_bytes or batches >= MAX_BATCHES_PER_RUN:
            self.flush()

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        """See `Wal`."""
        self.holds.refused(topic_id, partition, producer_id)

    def not_stored(self, topic_id: bytes, partition: int, producer_id: int, epoch: int, base_sequence: int) -> None:
        """See `Wal`."""
        self.failures.note(topic_id, partition, producer_id, epoch, base_sequence)

    def flush(self) -> None:
        """End the segment that is being filled and send it on its way."""
        segment, self._open = self._open, None
        if segment is None or not segment.waiting:
            self.timer.cancel()
            return
        self.timer.ended()
        self._underway[segment.number] = segment
        segment.task = asyncio.get_running_loop().create_task(self._see_through(segment))

    async def drain(self) -> None:
        """See `Wal`."""
        self.flush()
        while self._underway:
            await asyncio.wait({segment.task for segment in self._underway.values() if segment.task is not None})
            self.flush()
        await self.holds.drain()

    async def close(self) -> None:
        """See `Wal`."""
        self.timer.cancel()
        tasks = [segment.task for segment in self._underway.values() if segment.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for segment in [*self._underway.values(), *([self._open] if self._open else [])]:
            self._fail(segment, KAFKA_STORAGE_ERROR)
        await self.holds.close()

    async def _see_through(self, segment: WaitingSegment) -> None:
        error_code = KAFKA_STORAGE_ERROR
        try:
            built = await self._upload(segment)
            while self._has_earlier(segment):
                await self._told.wait()
            if built is not None and segment.waiting:
                error_code = REQUEST_TIMED_OUT
                await self._commit(segment, built)
        except StorageError as error:
            self._stats.upload_failures += 1
            log.error("upload_failed", reason=str(error), effect=_RETRIABLE, remedy="check the bucket")
        except CoordinatorUnavailable as error:
            self._stats.commit_failures += 1
            log.error("commit_failed", reason=str(error), effect=_RETRIABLE, remedy="check the coordinator's store")
        except Exception:
            self._stats.commit_failures += 1
            log.exception("segment_failed", effect=_RETRIABLE, remedy="report this error")
        finally:
            self._underway.pop(segment.number, None)
            self._fail(segment, error_code)
            self._wake()
            self.timer.look()

    def _has_earlier(self, segment: WaitingSegment) -> bool:
        """Return whether an earlier segment has batches of the same partitions that are not answered yet."""
        return any(
            earlier.number < segment.number and not earlier.waiting.keys().isdisjoint(segment.waiting)
            for earlier in self._underway.values()
        )

    def _wake(self) -> None:
        """Let segments that wait for earlier ones look again."""
        self._told.set()
        self._told.clear()

    async def _upload(self, segment: WaitingSegment) -> BuiltSegment | None:
        """Upload a segment; None if nobody waits for it any more when its turn comes."""
        async with self._uploads:
            if not segment.waiting:
                return None
            built = await _in_slices(segment.builder.build_in_steps())
            began_s = asyncio.get_running_loop().time()
            segment.not_after_ms = no_later(0, self._coordinator, self._max_age_ms)
            built = await self.hedge.upload(built)
            took_s = asyncio.get_running_loop().time() - began_s
            self._stats.upload_seconds.observe(took_s)
            self.recent.uploaded(built, took_s)
            self._stats.segment_bytes.observe(len(built.data))
            self._cache.insert(built.segment, built.data)
            return built

    async def _commit(self, segment: WaitingSegment, built: BuiltSegment) -> None:
        """Commit everything that somebody still waits for, and report the outcomes; retry as long as some are unknown.

        Each shard answers for itself: only the runs of shards that did not answer are retried. A run that is rejected
        unseen, for example by a fenced shard or one that was asked too late, may have taken effect in an earlier try.
        """
        loop = asyncio.get_running_loop()
        began_s, pause_s = loop.time(), _RETRY_FIRST_S
        unknown: set[Partition] = set()
        seen = False
        """True if the coordinator has looked at a run."""
        segment.not_after_ms = no_later(segment.not_after_ms, self._coordinator, self._grace_ms)
        while runs := [run for run in built.runs if (run.topic_id, run.partition) in segment.waiting]:
            try:
                answers = await self._coordinator.commit(built.segment, runs, not_after_ms=segment.not_after_ms)
            except ShardFenced:
                raise
            except CoordinatorUnavailable as error:
                failure = error
            else:
                self._heard(answers)
                seen = seen or any(run.error_code not in _UNSEEN for run in answers)
                await self._settle(segment, built, answers)
                left = {(run.topic_id, run.partition) for run in answers if run.error_code == REQUEST_TIMED_OUT}
                refused = segment.waiting.keys() - left
                self._fail(segment, REQUEST_TIMED_OUT, refused & unknown)
                self._fail(segment, KAFKA_STORAGE_ERROR, refused - unknown)
                failure = CoordinatorUnavailable(f"the store failed for {len(left)} of {len(runs)} partitions")
            if segment.waiting:
                if loop.time() - began_s + pause_s > self.commit_timeout_s:
                    raise failure
                unknown |= segment.waiting.keys()
                self._wake()
                log.warning("commit_retried", reason=str(failure))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _RETRY_LONGEST_S)
        if not seen:
            self._stats.commit_failures += 1
            return
        self._stats.commit_seconds.observe(loop.time() - began_s)
        self.recent.committed(built.segment, loop.time() - began_s)

    async def _settle(self, segment: WaitingSegment, built: BuiltSegment, answers: list[RunAnswer]) -> None:
        """Report the outcomes, except for held batches, and for runs that may be committed later, which `_fail`
        reports."""
        proposed = {(run.topic_id, run.partition): run for run in built.runs}
        unseen_batches = 0
        for some in in_slices(answers):
            unseen_batches += self._settle_some(segment, built, proposed, some)
            if len(answers) > len(some):
                await asyncio.sleep(0)  # no later segment commits these partitions meanwhile: see `_has_earlier`
        self._stats.refused_unseen_batches += unseen_batches
        now_ms = self._coordinator.deadline_ms(0)
        if unseen_batches and segment.not_after_ms and now_ms is not None and now_ms > segment.not_after_ms:
            self._throttled_log.warning(
                "commit_too_late",
                batches=unseen_batches,
                reason="their object may be deleted already: this process, the coordinator's store or the journal "
                "stood still for too long",
                effect=_RETRIABLE,
                remedy="check event_loop_lag_seconds, and whether the store and the brokers answer",
            )

    def _settle_some(
        self,
        segment: WaitingSegment,
        built: BuiltSegment,
        proposed: Mapping[Partition, PartitionRun],
        answers: Iterable[RunAnswer],
    ) -> int:
        """Report the outcomes of some runs. Return the number of batches that were not looked at."""
        reports: list[tuple[Settle, Outcome]] = []
        unseen_batches = 0
        try:
            for run in answers:
                # Not looked at: the index is full; fenced, tombstoned or late. They may come again. Or nobody knows.
                if run.error_code == REQUEST_TIMED_OUT:
                    continue
                if run.error_code == THROTTLING_QUOTA_EXCEEDED:
                    self._stats.index_full_batches += len(segment.waiting[run.topic_id, run.partition])
                elif run.error_code == KAFKA_STORAGE_ERROR:
                    unseen_batches += len(segment.waiting[run.topic_id, run.partition])
                else:
                    reports += self._outcomes(segment, built.segment, proposed[run.topic_id, run.partition], run)
        finally:
            report(reports)
        return unseen_batches

    def _outcomes(
        self, segment: WaitingSegment, name: bytes, proposed: PartitionRun, run: RunAnswer
    ) -> list[tuple[Settle, Outcome]]:
        """Return the reports for one run that was looked at. Its batches wait no more, unless this raises."""
        waiting = segment.waiting[run.topic_id, run.partition]
        if run.error_code != NONE:
            reports = [(settle, Outcome(run.error_code)) for settle in waiting]
        else:
            pairs = list(zip(waiting, run.batches, strict=True))
            held = self.holds.take(name, proposed, run, waiting, not_after_ms=segment.not_after_ms)
            reports = []
            for place, (settle, batch) in enumerate(pairs):
                if place not in held:
                    self._stats.duplicate_batches += batch.duplicate
                    error_code = producer_error(batch.error_code)
                    outcome = Outcome(
                        error_code,
                        batch.base_offset,
                        batch.append_time_ms,
                        run.log_start_offset,
                        duplicate=batch.duplicate,
                        high_watermark=run.high_watermark,
                    )
                    reports.append((settle, outcome))
        del segment.waiting[run.topic_id, run.partition]
        return reports

    def _fail(self, segment: WaitingSegment, error_code: int, partitions: Collection[Partition] | None = None) -> None:
        """Report the error to those that still wait, and to the later batches of their partitions, which can't be
        committed.

        `partitions` are those that failed; all if None. All are taken out before any callback, because a callback may
        append again.
        """
        failed = {
            one: segment.waiting.pop(one) for one in (list(segment.waiting) if partitions is None else partitions)
        }
        reports = [(settle, Outcome(error_code)) for waiting in failed.values() for settle in waiting]
        later = [one for one in self._underway.values() if one.number > segment.number]
        if self._open is not None:
            later.append(self._open)
        for partition in failed:
            self._note_failed(segment, partition)
            for one in later:
                if partition in one.waiting:
                    self._note_failed(one, partition)
                reports += [(settle, Outcome(KAFKA_STORAGE_ERROR)) for settle in one.waiting.pop(partition, ())]
                # What was charged for them is given back now. One that is being uploaded has a copy.
                one.builder.discard(*partition)
        report(reports)

    def _note_failed(self, segment: WaitingSegment, partition: Partition) -> None:
        for (producer_id, epoch), sequence in segment.first.pop(partition, {}).items():
            self.failures.note(*partition, producer_id, epoch, sequence)


async def _in_slices(steps: Steps[BuiltSegment]) -> BuiltSegment:
    """Do the work, and let others have the loop between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            built: BuiltSegment = done.value
            return built
        await asyncio.sleep(0)
