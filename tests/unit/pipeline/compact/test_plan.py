"""The rows of logs become spans, and spans become chunks."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.compact import plan as planning
from pipeline.compact.plan import Chunker, Cutter, Span, plan_logs
from proxy.coordinator.interface import Row
from proxy.coordinator.interface_registry import DisklessTopic
from tests.support.keyed import Keyed
from tests.support.memory_log import TOPIC
from tests.unit.pipeline.compact.simulated import CONFIGS, Simulated

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def rows_of(lengths: list[int]) -> list[Row]:
    return [Row(10 * place, 10 * place + 9, b"s" * 16, 1, length, 0, 0) for place, length in enumerate(lengths)]


@given(LENGTHS, st.integers(1, 200))
def test_spans_are_whole_rows_in_order(lengths: list[int], span_bytes: int) -> None:
    cutter = Cutter(7, span_bytes)
    for row in rows_of(lengths):
        cutter.add(row)

    spans = cutter.spans()

    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == 10 * len(lengths)
    assert sum(span.size_bytes for span in spans) == sum(lengths)
    assert sum(span.rows for span in spans) == len(lengths)
    assert all(span.log == 7 and (span.size_bytes <= span_bytes or span.rows == 1) for span in spans)


@given(LENGTHS, st.integers(1, 200))
def test_chunks_hold_all_spans_in_order(lengths: list[int], chunk_bytes: int) -> None:
    spans = [Span(log, 0, 10, length, 1) for log, length in enumerate(lengths)]
    chunker = Chunker(chunk_bytes)

    chunks = [chunk for span in spans for chunk in chunker.add(span)] + list(chunker.end())

    assert [span for chunk in chunks for span in chunk] == spans
    assert all(sum(span.size_bytes for span in chunk) <= chunk_bytes or len(chunk) == 1 for chunk in chunks)
    for one, other in pairwise(chunks):
        assert sum(span.size_bytes for span in (*one, other[0])) > chunk_bytes


@given(LENGTHS, st.integers(1, 200))
def test_no_chunk_has_two_spans_of_one_log(lengths: list[int], chunk_bytes: int) -> None:
    cutter, chunker = Cutter(0, chunk_bytes), Chunker(chunk_bytes)
    for row in rows_of(lengths):
        cutter.add(row)

    spans = cutter.spans()
    chunks = [chunk for span in spans for chunk in chunker.add(span)] + list(chunker.end())

    assert [len(chunk) for chunk in chunks] == [1] * len(spans)


def test_rows_are_bounded_however_small_they_are() -> None:
    cutter = Cutter(0, 1 << 30)
    for row in rows_of([1] * (planning.MAX_CHUNK_ROWS + 1)):
        cutter.add(row)

    assert [span.rows for span in cutter.spans()] == [planning.MAX_CHUNK_ROWS, 1]


async def test_only_what_is_due_is_planned_but_by_force() -> None:
    log = await Simulated(3).start()
    for partition in (0, 1):
        await log.produce([Keyed(b"key", b"value" * 20)], partition)
    await log.compact()
    await log.produce([Keyed(b"key", b"value" * 60)], 1)

    due = await plan_logs(log.stores(), [log.topic], now_ms=log.log.now_ms, chunk_bytes=9_999, force=False)
    forced = await plan_logs(log.stores(), [log.topic], now_ms=log.log.now_ms, chunk_bytes=9_999, force=True)

    assert [one.partition for one in due.logs] == [1]
    assert (due.logs_not_due, due.logs_empty) == (1, 1)
    assert [one.partition for one in forced.logs] == [0, 1]
    assert (forced.logs[1].name, forced.logs[1].end_offset) == ("compacted-1", 2)
    assert len(forced.chunks) == 1


async def test_young_records_are_not_planned() -> None:
    log = await Simulated().start()
    for _ in range(3):
        await log.produce([Keyed(b"key", b"value")])
        log.log.now_ms += 1_000
    topic = DisklessTopic("t", log.topic.topic_id, 1, "live", CONFIGS | {"min.compaction.lag.ms": "1500"})

    plan = await plan_logs(log.stores(), [topic], now_ms=log.log.now_ms, chunk_bytes=9_999, force=False)

    assert plan.logs[0].end_offset == 2
    assert plan.chunks[0][0].end == 2


async def test_topics_that_are_gone_are_left_out() -> None:
    log = await Simulated(2).start()
    await log.produce([Keyed(b"key", b"value")], 1)
    await log.log.coordinator.delete_logs(log.topic.topic_id, [0])

    plan = await plan_logs(log.stores(), [log.topic], now_ms=0, chunk_bytes=9_999, force=True)

    assert [one.partition for one in plan.logs] == [1]


async def is_due(log: Simulated, *, compacted: int, configs: dict[str, str]) -> bool:
    coordinator = log.log.coordinator
    await coordinator.rows.mark_compacted([(TOPIC, 0, compacted)])
    topic = dataclasses.replace(log.topic, configs=CONFIGS | configs)
    plan = await plan_logs(log.stores(), [topic], now_ms=log.log.now_ms, chunk_bytes=9_999, force=False)
    return bool(plan.logs)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("max_lag_ms", "due"), [(70, True), (80, False), (2**63 - 1, False)])
async def test_a_merge_delays_no_compaction_that_is_due_by_its_lag(merged: bool, max_lag_ms: int, due: bool) -> None:
    log = await Simulated().start()
    await log.produce([Keyed(b"key", b"value" * 400)])
    for number in range(8):
        log.log.now_ms += 10
        await log.produce([Keyed(b"key", b"%d" % number)])
    if merged:
        await log.log.swap(0, 0, 9)
    log.log.now_ms += 5
    configs = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(max_lag_ms)}

    assert await is_due(log, compacted=1, configs=configs) is due


async def test_a_first_batch_that_cannot_be_read_is_reported_when_its_keys_are_read() -> None:
    log = await Simulated().start()
    for _ in range(2):
        await log.produce([Keyed(b"key", b"value")])
        log.log.now_ms += 10
    await log.log.swap(0, 0, 2)
    configs = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "15"}
    assert await is_due(log, compacted=0, configs=configs)
    log.log.storage.objects.clear()

    assert not await is_due(log, compacted=0, configs=configs)
    log.log.now_ms += 10
    assert await is_due(log, compacted=0, configs=configs)
