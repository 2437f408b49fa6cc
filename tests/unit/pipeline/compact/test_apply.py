"""Swaps stay in order, whatever order the tasks end in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.compact.apply import CHANGED_MEANWHILE, Applier, State
from pipeline.compact.chunk import ChunkAnswer, Outcome, SpanAnswer, Unread
from pipeline.compact.plan import Log, Plan, Span
from proxy.coordinator.interface import LogDescription, Row, ShardFenced
from proxy.coordinator.interface_rewriting import Swap, SwapAnswer

TOPIC = b"t" * 16
LOGS = [Log("t", TOPIC, partition, 20, 0) for partition in range(2)]
SPANS = [Span(log, start, start + 10, 1, 1) for log in range(2) for start in (0, 10)]
PLAN = Plan(LOGS, [(SPANS[0],), (SPANS[1], SPANS[2]), (SPANS[3],)])


class Coordinator:
    """Records requests and gives planned answers."""

    def __init__(self) -> None:
        self.swapped: list[tuple[int, int]] = []
        self.marks: list[tuple[bytes, int, int]] = []
        self.tombstones: list[bytes] = []
        self.answers: dict[tuple[int, int], SwapAnswer] = {}
        self.log_start = 0
        self.fenced = False
        self.now_ms = 1_000
        self.not_after_ms: list[int] = []
        self.rows = self

    def deadline_ms(self, within_ms: int) -> int:
        return self.now_ms + within_ms

    async def replace(self, swaps: Sequence[Swap], *, not_after_ms: int = 0) -> list[SwapAnswer]:
        self.not_after_ms.append(not_after_ms)
        self.now_ms += 300
        if self.fenced:
            raise ShardFenced("it has lost writes")
        asked = [(swap.partition, swap.old[0].base_offset) for swap in swaps]
        self.swapped += asked
        return [self.answers.get(one, SwapAnswer.REPLACED) for one in asked]

    async def describe(self, topic_id: bytes, partitions: Sequence[int]) -> list[LogDescription | None]:
        return [LogDescription(self.log_start, 20, 0, 0, 20) for _ in partitions]

    async def mark_compacted(self, marks: Sequence[tuple[bytes, int, int]]) -> None:
        self.marks += marks

    async def tombstone(self, segments: Sequence[bytes]) -> list[bytes]:
        self.tombstones += segments
        return list(segments)


def rewritten(span: Span, *, count: int = 2) -> SpanAnswer:
    """With swaps of equal parts of the span."""
    step = (span.end - span.start) // count
    swaps = []
    for start in range(span.start, span.end, step):
        old = Row(start, start + step - 1, b"o" * 16, 1, 1, 0, 0)
        swaps.append(Swap(TOPIC, span.log, (old,), old._replace(segment=bytes([span.start]) * 16)))
    return SpanAnswer(span, Outcome.REWRITTEN, tuple(swaps))


ANSWERS = [
    ChunkAnswer([rewritten(SPANS[0])]),
    ChunkAnswer([rewritten(SPANS[1]), rewritten(SPANS[2])]),
    ChunkAnswer([rewritten(SPANS[3])]),
]


def applier(coordinator: Coordinator, *, dry_run: bool = False) -> Applier:
    return begun(Applier(coordinator, PLAN, dry_run=dry_run))  # type: ignore[arg-type]


def begun(applied: Applier, not_after_ms: int = 0) -> Applier:
    """Hand out all chunks."""
    for number in range(len(applied.plan.chunks)):
        applied.begin(number, not_after_ms)
    return applied


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_swaps_of_a_log_are_done_in_order(order: tuple[int, ...]) -> None:
    coordinator = Coordinator()
    applied = applier(coordinator)

    for chunk in order:
        await applied.take(chunk, ANSWERS[chunk])

    for log in range(2):
        assert [base for partition, base in coordinator.swapped if partition == log] == [0, 5, 10, 15]
    assert applied.states == [State.DONE, State.DONE]
    assert coordinator.marks == [(TOPIC, 0, 20), (TOPIC, 1, 20)]
    assert (applied.swaps, applied.rows_replaced, applied.rows_written) == (8, 8, 8)


async def test_nothing_is_swapped_after_a_swap_that_failed() -> None:
    coordinator = Coordinator()
    coordinator.answers[0, 5] = SwapAnswer.CHANGED
    applied = applier(coordinator)

    for chunk, answer in enumerate(ANSWERS):
        await applied.take(chunk, answer)

    assert coordinator.swapped == [(0, 0), (0, 5), (1, 0), (1, 5), (1, 10), (1, 15)]
    assert applied.states == [State.AGAIN, State.DONE]
    assert applied.kinds == {0: CHANGED_MEANWHILE}
    assert coordinator.marks == [(TOPIC, 1, 20)]


@pytest.mark.parametrize(("log_start", "goes_on"), [(9, False), (10, True)])
async def test_rows_that_retention_deleted_stop_nothing(log_start: int, goes_on: bool) -> None:
    coordinator = Coordinator()
    coordinator.answers[0, 5] = SwapAnswer.CHANGED
    coordinator.log_start = log_start
    applied = applier(coordinator)

    for chunk, answer in enumerate(ANSWERS):
        await applied.take(chunk, answer)

    assert (applied.states[0] is State.DONE) is goes_on
    assert ((0, 15) in coordinator.swapped) is goes_on


@pytest.mark.parametrize(
    ("answer", "state"),
    [(SwapAnswer.GONE, State.GONE), (SwapAnswer.REFUSED, State.AGAIN), (SwapAnswer.LATE, State.AGAIN)],
)
async def test_other_answers_stop_the_log(answer: SwapAnswer, state: State) -> None:
    coordinator = Coordinator()
    coordinator.answers[0, 0] = answer
    applied = applier(coordinator)

    await applied.take(0, ANSWERS[0])

    assert applied.states[0] is state
    assert coordinator.swapped == [(0, 0)]
    assert coordinator.tombstones == [bytes(16)], "nothing uses the object"


async def test_a_task_that_failed_stops_the_logs_of_its_chunk() -> None:
    coordinator = Coordinator()
    applied = applier(coordinator)

    await applied.take(2, ANSWERS[2])
    await applied.take(1, "the disk is full")
    await applied.take(0, ANSWERS[0])

    assert coordinator.swapped == [(0, 0), (0, 5)]
    assert applied.states == [State.AGAIN, State.AGAIN]
    assert applied.reasons == {0: "the disk is full", 1: "the disk is full"}


async def test_a_tasks_result_for_a_span_counts_for_its_log() -> None:
    applied = applier(Coordinator())
    unread = Unread("corrupt_batch", "object x, position 1")

    await applied.take(0, ChunkAnswer([SpanAnswer(SPANS[0], Outcome.UNREADABLE, unread=unread)]))
    await applied.take(1, ChunkAnswer([SpanAnswer(SPANS[2], Outcome.CHANGED)]))

    assert applied.states == [State.FAILED, State.AGAIN]
    assert (applied.kinds[0], applied.reasons[0]) == unread
    assert applied.reasons[1].startswith("its rows of offsets 0 to 9 were changed meanwhile")


async def test_a_dry_run_swaps_nothing() -> None:
    coordinator = Coordinator()
    applied = applier(coordinator, dry_run=True)

    for chunk, answer in enumerate(ANSWERS):
        await applied.take(chunk, answer)

    assert applied.states == [State.DONE, State.DONE]
    assert (coordinator.swapped, coordinator.marks, coordinator.tombstones) == ([], [], [])


async def test_a_fenced_shard_ends_it_at_once() -> None:
    coordinator = Coordinator()
    coordinator.fenced = True

    with pytest.raises(ShardFenced):
        await applier(coordinator).take(0, ANSWERS[0])


@pytest.mark.parametrize(("planned_ms", "not_after_ms"), [(90_000, 6_000), (3_000, 3_000), (0, 6_000)])
async def test_all_rows_of_an_object_are_swapped_before_it_can_be_freed_and_deleted(
    planned_ms: int, not_after_ms: int
) -> None:
    coordinator = Coordinator()
    applied = begun(Applier(coordinator, PLAN, further_rows_within_ms=5_000), planned_ms)  # type: ignore[arg-type]

    await applied.take(0, ChunkAnswer([rewritten(SPANS[0])]))

    assert coordinator.not_after_ms == [not_after_ms, not_after_ms]


async def test_a_chunk_that_is_not_handed_out_swaps_nothing() -> None:
    """Its log was stopped before."""
    applied = Applier(Coordinator(), PLAN)  # type: ignore[arg-type]
    for log in range(2):
        applied.stop(log, State.FAILED)

    for chunk in range(3):
        await applied.take(chunk, ChunkAnswer())

    assert applied.states == [State.FAILED, State.FAILED]
    assert applied.swaps == 0


async def test_a_log_waits_for_its_own_chunks_alone() -> None:
    coordinator = Coordinator()
    alone = [Span(log, 0, 20, 1, 1) for log in range(2)]
    applied = begun(Applier(coordinator, Plan(LOGS, [(alone[0],), (alone[1],)])))  # type: ignore[arg-type]

    await applied.take(1, ChunkAnswer([rewritten(alone[1])]))

    assert coordinator.swapped == [(1, 0), (1, 10)]
    assert (applied.states, applied.waiting) == ([State.UNDER_WAY, State.DONE], 0)
    assert coordinator.marks == [(TOPIC, 1, 20)]


async def test_waiting_swaps_are_counted() -> None:
    applied = applier(Coordinator())

    waiting = []
    for chunk in (2, 1, 0):
        await applied.take(chunk, ANSWERS[chunk])
        waiting.append(applied.waiting)

    assert waiting == [1, 2, 0]
