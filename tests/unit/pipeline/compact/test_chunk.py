"""A task's result for its chunk, and for rows that do not exist any more."""

from __future__ import annotations

import pytest

from pipeline.compact import chunk as chunks
from pipeline.compact.chunk import Outcome, rewrite_in
from pipeline.compact.plan import plan_logs
from pipeline.compact.spans import Work
from proxy.storage.interface import ObjectMissing
from tests.support.keyed import Keyed
from tests.support.memory_log import TOPIC
from tests.unit.pipeline.compact.simulated import Simulated


async def planned(log: Simulated, *, dry_run: bool = False) -> Work:
    """All in one chunk."""
    plan = await plan_logs(log.stores(), [log.topic], now_ms=log.log.now_ms, chunk_bytes=1 << 20, force=True)
    return Work(None, tuple(plan.logs), tuple(plan.chunks), log.log.now_ms, dry_run)  # type: ignore[arg-type]


async def written(count: int) -> Simulated:
    log = await Simulated().start()
    for number in range(count):
        await log.produce([Keyed(b"key", b"%d" % number)])
    return log


async def test_rows_that_are_replaced_meanwhile_are_not_a_loss() -> None:
    log = await written(4)
    work, stores = await planned(log), log.stores()
    fetch = stores.storage.fetch

    async def merging(key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        await log.log.swap(0, 0, len(log.log.coordinator.logs[TOPIC, 0].rows))
        log.log.delete_unused()
        return await fetch(key, start, end)

    stores.storage.fetch = merging  # type: ignore[method-assign]
    answer = await rewrite_in(stores, work, work.chunks[0], {0: [3 << 1]}, {})

    assert [one.outcome for one in answer.spans] == [Outcome.CHANGED]
    assert answer.bytes_written == 0


async def test_a_missing_object_is_reported_by_name() -> None:
    log = await written(4)
    work, stores = await planned(log), log.stores()

    async def without(key: str, start: int = 0, end: int | None = None) -> bytes | bytearray:
        raise ObjectMissing(key)

    stores.storage.fetch = without  # type: ignore[method-assign]
    answer = await rewrite_in(stores, work, work.chunks[0], {0: [3 << 1]}, {})

    (one,) = answer.spans
    assert one.outcome is Outcome.UNREADABLE
    assert one.unread is not None
    assert one.unread.kind == "missing_object"
    assert any(row.segment.hex() in one.unread.text for row in log.log.coordinator.logs[TOPIC, 0].rows)


async def test_rows_that_cross_the_end_of_the_span_are_left_for_another_time() -> None:
    log = await written(4)
    work = await planned(log)
    await log.produce([Keyed(b"key", b"4")])
    await log.log.swap(0, 2, 3)

    answer = await rewrite_in(log.stores(), work, work.chunks[0], {0: [3 << 1]}, {})

    assert [one.outcome for one in answer.spans] == [Outcome.CHANGED]


async def test_a_log_that_was_deleted_completely_needs_no_work() -> None:
    log = await written(4)
    work = await planned(log)
    log.log.coordinator._trim(log.log.coordinator.logs[TOPIC, 0], 4)

    answer = await rewrite_in(log.stores(), work, work.chunks[0], {0: [3 << 1]}, {})

    assert [one.outcome for one in answer.spans] == [Outcome.UNCHANGED]


async def test_a_dry_run_uploads_nothing_and_reports_the_same() -> None:
    log = await written(4)
    objects = set(log.log.storage.objects)

    dry = await rewrite_in(log.stores(), work := await planned(log, dry_run=True), work.chunks[0], {0: [3 << 1]}, {})
    assert set(log.log.storage.objects) == objects
    real = await rewrite_in(log.stores(), work := await planned(log), work.chunks[0], {0: [3 << 1]}, {})

    assert len(set(log.log.storage.objects) - objects) == 1
    assert (dry.bytes_written, dry.records_before, dry.records_after) == (real.bytes_written, 4, 1)


async def test_rows_end_at_a_mebibyte_or_at_as_many_as_a_swap_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_ROWS_PER_SWAP", 3)
    monkeypatch.setattr(chunks, "ROW_BYTES", 150)  # a batch has 70 bytes
    log = await written(9)
    work = await planned(log)

    answer = await rewrite_in(log.stores(), work, work.chunks[0], {0: [offset << 1 for offset in (3, 4, 5, 8)]}, {})

    swaps = answer.spans[0].swaps
    assert [[row.base_offset for row in swap.old] for swap in swaps] == [[0, 1, 2], [3, 4], [5, 6, 7], [8]]
    assert [swap.new and (swap.new.base_offset, swap.new.last_offset) for swap in swaps] == [
        None,
        (3, 4),
        (5, 5),
        (8, 8),
    ]
