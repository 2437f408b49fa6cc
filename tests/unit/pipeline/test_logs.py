"""Rows of a log within bounds, and logs that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pipeline import logs
from pipeline.logs import LogGone, patiently, rows_of_log
from proxy.coordinator import patience
from proxy.coordinator.interface import (
    CoordinatorUnavailable,
    DeleteRequest,
    FindRequest,
    LogAnswer,
    Row,
    ShardFenced,
)
from proxy.protocol.errors import KAFKA_STORAGE_ERROR
from tests.batches import make_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log


async def log_of(counts: Sequence[int]) -> MemoryLog:
    log = await new_log()
    for count in counts:
        await log.write([(0, make_batch([b"v"] * count))])
    return log


async def offsets(log: MemoryLog, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    pages = rows_of_log(log.coordinator, TOPIC, 0, start=start, end=end)
    return [(row.base_offset, row.last_offset) async for page in pages for row in page]


async def test_rows_between_two_offsets() -> None:
    log = await log_of([3, 2, 5])
    assert await offsets(log) == [(0, 2), (3, 4), (5, 9)]
    assert await offsets(log, start=3) == [(3, 4), (5, 9)]
    assert await offsets(log, start=4, end=5) == [(3, 4)]
    assert await offsets(log, start=4, end=6) == [(3, 4), (5, 9)]
    assert await offsets(log, start=10) == []
    assert await offsets(log, start=11) == []
    assert await offsets(log, start=5, end=5) == []


async def test_from_the_log_start_on_where_it_is_later() -> None:
    log = await log_of([3, 2, 5])
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 4)])
    assert await offsets(log) == [(3, 4), (5, 9)]


async def test_records_written_meanwhile_are_left_out() -> None:
    log = await log_of([1])

    class Growing:
        async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
            (answer,) = await log.coordinator.find([request._replace(max_bytes=1) for request in requests])
            await log.write([(0, make_batch())])
            return [answer]

    assert [len(page) async for page in rows_of_log(Growing(), TOPIC, 0)] == [1]  # type: ignore[arg-type]


async def test_a_log_that_does_not_live() -> None:
    log = await log_of([1])
    with pytest.raises(LogGone, match="partition 7"):
        await anext(rows_of_log(log.coordinator, TOPIC, 7))


class Failing:
    """A coordinator that fails so often before it answers."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.calls = 0

    async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return [LogAnswer(0, (Row(0, 0, bytes(16), 1, 10, 0, 0),), 0, 1, 1)]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(patience.asyncio, "sleep", pause)
    assert asyncio.sleep is pause
    return waited


async def test_a_store_that_does_not_answer_is_asked_again(pauses: list[float]) -> None:
    failing = Failing(CoordinatorUnavailable("down"), 2)
    assert [len(page) async for page in rows_of_log(failing, TOPIC, 0)] == [1]  # type: ignore[arg-type]
    assert pauses == [0.5, 1.0]


async def test_the_retries_end(pauses: list[float]) -> None:
    failing = Failing(CoordinatorUnavailable("down"), 99)
    with pytest.raises(CoordinatorUnavailable, match="down"):
        await patiently(lambda: failing.find([]))
    assert failing.calls == logs.TRIES
    assert len(pauses) == logs.TRIES - 1


async def test_a_fenced_shard_is_reported_at_once(pauses: list[float]) -> None:
    with pytest.raises(ShardFenced):
        await patiently(lambda: Failing(ShardFenced("lost"), 1).find([]))

    class Fenced:
        async def find(self, requests: Sequence[FindRequest]) -> list[LogAnswer]:
            return [LogAnswer(KAFKA_STORAGE_ERROR, (), -1, -1, -1)]

    with pytest.raises(ShardFenced, match="partition 3 is fenced"):
        await anext(rows_of_log(Fenced(), TOPIC, 3))  # type: ignore[arg-type]
    assert pauses == []
