"""Put the tasks' results into the index: each log's swaps in their order, unless something changed in between.

The order matters: a tombstone may go only when every older value of its key has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from pipeline.compact.chunk import ChunkAnswer, Outcome, SpanAnswer
from pipeline.compact.plan import Plan, Span
from pipeline.logs import patiently
from proxy.coordinator.interface import Coordinator
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer
from proxy.coordinator.lateness import no_later

CHANGED_MEANWHILE = "changed_meanwhile"
_SWEPT = "the new object was swept as an orphan before it was used, or was too old to be safe"


class State(Enum):
    """The state of a log in the run."""

    UNDER_WAY = "under way"
    AGAIN = "again"
    """Its rows changed meanwhile, or a task failed: the rest of it has to be planned again."""
    DONE = "done"
    GONE = "gone"
    FAILED = "failed"


@dataclass
class Applier:
    """Takes the answers of all chunks of a plan in any order, and has their swaps done in the plan's."""

    coordinator: Coordinator
    plan: Plan
    dry_run: bool = False
    """Swap nothing, and report everything as if it were swapped."""
    further_rows_within_ms: int = 0
    """After the first swap of an object (`Garbage.further_rows_within_ms`); 0 for no limit."""
    states: list[State] = field(init=False)
    """States of the plan's logs."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why logs are to be tried again, or have failed."""
    kinds: dict[int, str] = field(default_factory=dict)
    """The same as names of findings."""
    swaps: int = 0
    """Number of swaps that were done."""
    rows_replaced: int = 0
    rows_written: int = 0

    def __post_init__(self) -> None:
        self.states = [State.UNDER_WAY] * len(self.plan.logs)
        self._applied = [False] * len(self.plan.chunks)
        self._waiting: dict[int, ChunkAnswer | str] = {}
        self._not_after_ms: dict[int, int] = {}
        self._last_chunk = {span.log: number for number, chunk in enumerate(self.plan.chunks) for span in chunk}

    def stop(self, log: int, state: State, reason: str = "", kind: str = "") -> None:
        """Leave the log as it is from now on."""
        if self.states[log] is State.UNDER_WAY:
            self.states[log] = state
            if reason:
                self.reasons[log] = reason
                self.kinds[log] = kind

    def stop_all(self) -> None:
        """Leave all logs as they are, for a reason that is reported elsewhere."""
        for log in range(len(self.states)):
            self.stop(log, State.FAILED)

    def begin(self, chunk: int, not_after_ms: int) -> None:
        """Take the time until which the swaps of a chunk may be done, which is handed out now; others have none."""
        self._not_after_ms[chunk] = not_after_ms

    async def take(self, chunk: int, answer: ChunkAnswer | str) -> None:
        """Take the answer of a chunk, or the reason why it has none; finish what waited for it too.

        Raises ShardFenced and CoordinatorUnavailable: then it is unknown whether the swap under way was done.
        """
        self._waiting[chunk] = answer
        while chunk in self._waiting and self._is_next(chunk):
            await self._apply(chunk, self._waiting.pop(chunk))
            self._applied[chunk] = True
            chunk += 1

    @property
    def waiting(self) -> int:
        """Answers of which an earlier chunk of the same log has to come first."""
        return len(self._waiting)

    def _is_next(self, chunk: int) -> bool:
        """Return whether all chunks before it were done that have spans of its logs: those share one log at most."""
        chunks = self.plan.chunks
        return not chunk or self._applied[chunk - 1] or chunks[chunk - 1][-1].log != chunks[chunk][0].log

    async def _apply(self, number: int, answer: ChunkAnswer | str) -> None:
        chunk = self.plan.chunks[number]
        if isinstance(answer, str):
            for span in chunk:
                self.stop(span.log, State.AGAIN, answer, "task_failed")
            return
        for one in answer.spans:
            await self._take_span(one)
        rewritten = [one for one in answer.spans if one.outcome is Outcome.REWRITTEN]
        await self._swap(rewritten, self._not_after_ms.pop(number, 0))
        await self._end(span.log for span in chunk if self._last_chunk[span.log] == number)

    async def _take_span(self, answer: SpanAnswer) -> None:
        log = answer.span.log
        if answer.outcome is Outcome.GONE:
            self.stop(log, State.GONE)
        elif answer.unread is not None:
            self.stop(log, State.FAILED, answer.unread.text, answer.unread.kind)
        elif answer.outcome is Outcome.CHANGED and not await self._is_trimmed(log, answer.span.end):
            self.stop(log, State.AGAIN, _changed(answer.span), CHANGED_MEANWHILE)

    async def _swap(self, answers: list[SpanAnswer], not_after_ms: int) -> None:
        """Do the first swap of each span, then the second, so that none is done after a swap that was not."""
        if self.dry_run:
            return
        before, not_after_ms = self.rows_written, no_later(not_after_ms, self.coordinator, self.further_rows_within_ms)
        left: list[tuple[SpanAnswer, Iterator[Swap]]] = [(answer, iter(answer.swaps)) for answer in answers]
        while left:
            left = [one for one in left if self.states[one[0].span.log] is State.UNDER_WAY]
            pairs = [(answer, swap, rest) for answer, rest in left if (swap := next(rest, None)) is not None]
            swaps = [swap for _, swap, _ in pairs]
            replace = partial(self.coordinator.rows.replace, swaps, not_after_ms=not_after_ms)
            done = await patiently(replace) if swaps else []
            for (answer, swap, _), what in zip(pairs, done, strict=True):
                await self._swapped(answer.span, swap, what)
            left = [(answer, rest) for answer, _, rest in pairs]
        made = {swap.new.segment for answer in answers for swap in answer.swaps if swap.new is not None}
        if made and self.rows_written == before:
            # Nobody uses it, nor will: the fleet's collection deletes it sooner than other orphans.
            await patiently(partial(self.coordinator.tombstone, list(made)))

    async def _swapped(self, span: Span, swap: Swap, answer: SwapAnswer) -> None:
        if answer is SwapAnswer.REPLACED:
            self.swaps += 1
            self.rows_replaced += len(swap.old)
            self.rows_written += swap.new is not None
        elif answer is SwapAnswer.GONE:
            self.stop(span.log, State.GONE)
        elif answer in (SwapAnswer.REFUSED, SwapAnswer.LATE):
            self.stop(span.log, State.AGAIN, _SWEPT, CHANGED_MEANWHILE)
        elif not await self._is_trimmed(span.log, swap.old[-1].last_offset + 1):
            self.stop(span.log, State.AGAIN, _changed(span), CHANGED_MEANWHILE)

    async def _is_trimmed(self, log: int, end: int) -> bool:
        """Return whether all before an offset has gone by retention or deletion, so that nothing of it had to be
        changed."""
        one = self.plan.logs[log]
        (described,) = await patiently(partial(self.coordinator.describe, one.topic_id, [one.partition]))
        return described is None or described.log_start_offset >= end

    async def _end(self, logs: Iterable[int]) -> None:
        done = [log for log in dict.fromkeys(logs) if self.states[log] is State.UNDER_WAY]
        for log in done:
            self.states[log] = State.DONE
        ends = [self.plan.logs[log] for log in done]
        if ends and not self.dry_run:
            marks = [(log.topic_id, log.partition, log.end_offset) for log in ends]
            await patiently(partial(self.coordinator.rows.mark_compacted, marks))


def _changed(span: Span) -> str:
    return (
        f"its rows of offsets {span.start} to {span.end - 1} were changed meanwhile, by a merge or another compaction"
    )
