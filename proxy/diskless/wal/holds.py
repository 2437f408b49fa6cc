"""Batches whose sequence is beyond the expected one wait here for the batches between.

A producer that moves to another proxy may be heard there before the first proxy has committed what it was sent. The
early batch is uploaded and rejected, but not answered. The same run of the same segment is committed again until the
batch is accepted, or the hold is over and the answer is OUT_OF_ORDER_SEQUENCE_NUMBER after all. A batch that waits for
the marker of a transaction is held too, and then gets its own error. Nothing is stored for a hold. The coordinator's
expected sequence keeps the order: each of several waiting batches is accepted only in its turn.

If this proxy itself has just rejected a batch of that producer, its later batches are not held, because nothing is on
its way. Then the early batches of other producers in the same run are not held either, because a run is committed as a
whole.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

import structlog

from proxy.coordinator.interface import Coordinator, CoordinatorUnavailable, PartitionRun, RunAnswer
from proxy.diskless.wal.outcome import Outcome, Settle, producer_error, report
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE, REQUEST_TIMED_OUT

log = structlog.get_logger()

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.5
_MAX_REFUSALS = 10_000
_Producer = tuple[bytes, int, int]
"""Topic ID, partition, producer ID."""


class Holds:
    """Keeps batches for `hold_s` at most (0 holds none), and no more than `max_batches` at a time.

    `heard` is called with the answers of commits before any callback.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        hold_s: float,
        max_batches: int,
        heard: Callable[[Sequence[RunAnswer]], None] = lambda answers: None,
    ) -> None:
        self._coordinator = coordinator
        self._heard = heard
        self.max_batches = max_batches
        self.hold_s = hold_s
        self._tasks: dict[asyncio.Task[None], dict[int, Settle]] = {}
        """The callbacks that each task has still to call."""
        self._refused_at_s: OrderedDict[_Producer, float] = OrderedDict()
        self.held_batches = 0
        """Waiting now."""

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        """Note that this proxy has rejected a batch of the producer."""
        producer = topic_id, partition, producer_id
        self._refused_at_s[producer] = asyncio.get_running_loop().time()
        self._refused_at_s.move_to_end(producer)
        if len(self._refused_at_s) > _MAX_REFUSALS:
            self._refused_at_s.popitem(last=False)

    def take(
        self, segment: bytes, run: PartitionRun, answer: RunAnswer, waiting: list[Settle], *, not_after_ms: int = 0
    ) -> set[int]:
        """Hold the early batches of a run that was committed; return their places. The caller reports the other
        batches.

        Either all of them are held or none. A hold commits the whole run again, so an early batch whose producer got an
        out-of-order error could be stored after all, next to its retry.

        `waiting` has the callback of each batch of the run. `not_after_ms`: see `Coordinator.commit`.
        """
        early = [place for place, batch in enumerate(answer.batches) if batch.early]
        full = self.held_batches + len(early) > self.max_batches
        if not early or full or not all(self._may_follow(run, place) for place in early):
            return set()
        held = {place: waiting[place] for place in early}
        errors = {place: answer.batches[place].error_code for place in early}
        self.held_batches += len(held)
        task = asyncio.get_running_loop().create_task(self._wait(segment, run, held, errors, not_after_ms))
        self._tasks[task] = held
        task.add_done_callback(self._tasks.pop)
        return set(early)

    def _may_follow(self, run: PartitionRun, place: int) -> bool:
        """Return whether what comes before the batch may be on its way."""
        producer = run.topic_id, run.partition, run.batches[place].producer_id
        refused_at_s = self._refused_at_s.get(producer)
        if refused_at_s is not None and asyncio.get_running_loop().time() - refused_at_s <= self.hold_s:
            return False
        return self.hold_s > 0

    async def drain(self) -> None:
        """Wait until every hold is over."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Give up on all of them."""
        tasks = dict(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in tasks.values():  # of a task that had not begun
            self._report(held, dict.fromkeys(held, Outcome(KAFKA_STORAGE_ERROR)))

    async def _wait(
        self, segment: bytes, run: PartitionRun, held: dict[int, Settle], errors: dict[int, int], not_after_ms: int
    ) -> None:
        """Commit the run again until no batch is held. `errors`: the answer of each batch after the hold."""
        loop = asyncio.get_running_loop()
        until_s, pause_s = loop.time() + self.hold_s, _FIRST_PAUSE_S
        if_ended: int | None = KAFKA_STORAGE_ERROR
        ambiguous = False
        try:
            while held and loop.time() < until_s:
                await asyncio.sleep(min(pause_s, until_s - loop.time()))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if_ended = REQUEST_TIMED_OUT
                try:
                    (answer,) = await self._coordinator.commit(segment, [run], not_after_ms=not_after_ms)
                except CoordinatorUnavailable as error:
                    log.warning("hold_not_tried", reason=str(error))
                    errors, ambiguous = dict.fromkeys(held, REQUEST_TIMED_OUT), True
                    continue
                self._heard([answer])
                if ambiguous and answer.error_code == KAFKA_STORAGE_ERROR:
                    # This try was refused unseen; the one that was not answered may have taken effect.
                    answer = answer._replace(error_code=REQUEST_TIMED_OUT)
                ambiguous, if_ended = False, KAFKA_STORAGE_ERROR
                self._tell_settled(answer, held)
                errors = {place: answer.batches[place].error_code for place in held}
            if_ended = None
        finally:
            left = {place: Outcome(errors[place] if if_ended is None else if_ended) for place in held}
            self._report(held, left)

    def _tell_settled(self, answer: RunAnswer, held: dict[int, Settle]) -> None:
        if answer.error_code != NONE:
            self._report(held, dict.fromkeys(held, Outcome(producer_error(answer.error_code))))
            return
        outcomes = {}
        for place in held:
            batch = answer.batches[place]
            if not batch.early:
                outcomes[place] = Outcome(
                    producer_error(batch.error_code),
                    batch.base_offset,
                    batch.append_time_ms,
                    answer.log_start_offset,
                    duplicate=batch.duplicate,
                    high_watermark=answer.high_watermark,
                )
        self._report(held, outcomes)

    def _report(self, held: dict[int, Settle], outcomes: dict[int, Outcome]) -> None:
        self.held_batches -= len(outcomes)
        report([(held.pop(place), outcome) for place, outcome in outcomes.items()])
