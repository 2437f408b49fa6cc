"""Rows ahead of a reader that is far behind: fewer lookups, and never a row that the coordinator would not return."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.coordinator.interface import FindRequest, LogAnswer, PartitionRun, ProposedBatch
from proxy.coordinator.interface_transactions import Marker, MarkersRead
from proxy.diskless import rows_ahead
from proxy.diskless.coordinates import Coordinates
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.unit.diskless.test_coordinates import TOPIC, Coordinator, following, locate, turns

PRODUCER = 70


@asynccontextmanager
async def long_log(batches: int = 100) -> AsyncIterator[tuple[Coordinator, Coordinates]]:
    """Follow a log of batches of one record and 100 bytes, which are rows of their own."""
    async with following() as (coordinator, coordinates):
        for _ in range(batches):
            await coordinator.append()
        yield coordinator, coordinates


async def read(coordinates: Coordinates, first: int, until: int, *, committed: bool = False) -> list[LogAnswer]:
    """Read rows from one offset to another, two at a time; return the answers."""
    answers = []
    while first < until:
        request = FindRequest(TOPIC, 0, first, 200)
        (answer,) = await coordinates.locate([request], trust_ends=False, committed=committed)
        assert answer.rows[0].base_offset == first
        answers.append(answer)
        first = answer.rows[-1].last_offset + 1
    return answers


async def test_a_reader_that_goes_on_asks_once_for_many_answers() -> None:
    async with long_log() as (coordinator, coordinates):
        answers = await read(coordinates, 0, 80)
        assert [len(answer.rows) for answer in answers] == [2] * 40
        assert coordinator.asked <= 6


async def test_who_reads_here_and_there_asks_for_no_more_than_it_needs() -> None:
    async with long_log() as (coordinator, coordinates):
        sizes = []
        find = coordinator.find

        async def noted(requests: Any) -> Any:
            sizes.extend(request.max_bytes for request in requests)
            return await find(requests)

        coordinator.find = noted  # type: ignore[method-assign]
        for offset in (50, 10, 70, 30):
            await locate(coordinates, offset, max_bytes=200)
        assert sizes == [200] * 4


async def test_readers_of_many_logs_ask_for_no_more_than_they_need() -> None:
    ahead, answer = rows_ahead.RowsAhead(), await _answer()
    requests = [FindRequest(TOPIC, number, 0, 200) for number in range(20)]
    for request in requests:
        ahead.keep(request, answer, 0.0)
    further = [request._replace(offset=2) for request in requests]
    assert ahead.widened(further) == further
    assert {request.max_bytes for request in ahead.widened(further[:8])} == {400}
    assert {request.max_bytes for request in ahead.widened(further[:1])} == {1600}


async def _answer() -> LogAnswer:
    async with long_log(10) as (coordinator, _):
        (answer,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 200)])
        return answer


async def test_a_reader_reaches_the_end() -> None:
    async with long_log() as (coordinator, coordinates):
        await read(coordinates, 0, 100)
        asked = coordinator.asked
        await coordinator.append()
        assert (await locate(coordinates, 100, max_bytes=200)).high_watermark == 101
        assert coordinator.asked == asked, "from here on rows are announced"


async def test_rows_are_asked_for_again_after_some_time() -> None:
    async with long_log() as (coordinator, coordinates):
        now_s = 0.0
        coordinates._now_s = lambda: now_s
        await read(coordinates, 0, 6)
        asked = coordinator.asked
        now_s = 15.1
        await read(coordinates, 6, 8)
        assert coordinator.asked == asked + 1


async def test_without_the_coordinator_they_serve_longer() -> None:
    async with long_log() as (coordinator, coordinates):
        now_s = 0.0
        coordinates._now_s = lambda: now_s
        await read(coordinates, 0, 6)
        coordinator.down = True
        now_s = 59.0
        assert len(await read(coordinates, 6, 16)) == 5
        now_s = 61.0
        assert (await locate(coordinates, 6, max_bytes=200)).error_code == KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("announced", [True, False])
async def test_rows_before_a_new_log_start_are_not_used(announced: bool) -> None:
    async with long_log() as (coordinator, coordinates):
        await read(coordinates, 0, 6)
        if announced:
            log = coordinator.logs[TOPIC, 0]
            log.start = 50
            await coordinator.append()
        else:
            coordinates.note(TOPIC, 0, 50)
        asked = coordinator.asked
        await locate(coordinates, 6, max_bytes=200)
        assert coordinator.asked == asked + 1


async def test_the_ends_of_the_log_follow_what_is_announced() -> None:
    async with long_log() as (coordinator, coordinates):
        await read(coordinates, 0, 6)
        await coordinator.append(records=7)
        asked = coordinator.asked
        answer = await locate(coordinates, 6, max_bytes=200)
        assert (answer.high_watermark, answer.last_stable_offset, coordinator.asked) == (107, 107, asked)


async def test_without_a_subscription_nothing_is_kept() -> None:
    async with long_log() as (coordinator, _):
        coordinates = Coordinates(coordinator)
        before = coordinator.asked
        await read(coordinates, 0, 20)
        assert coordinator.asked == before + 10


async def test_a_lost_subscription_and_a_deleted_topic_end_their_use() -> None:
    async with long_log() as (coordinator, coordinates):
        for end in (coordinator.lose_subscription, lambda: coordinates.forget(TOPIC)):
            await read(coordinates, 0, 6)
            end()
            await turns()
            asked = coordinator.asked
            await locate(coordinates, 6, max_bytes=200)
            assert coordinator.asked == asked + 1


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_transaction_that_is_aborted_later_is_never_read_as_committed(is_away: bool) -> None:
    async with long_log(20) as (coordinator, coordinates):
        batch = ProposedBatch(100, 1, 0, PRODUCER, 0, 0, 2, 0)
        (run,) = await coordinator.commit(bytes(16), [PartitionRun(TOPIC, 0, 1, (batch,))])
        assert run.batches[0].error_code == NONE
        for _ in range(20):
            await coordinator.append()
        await read(coordinates, 10, 18)  # up to rows beyond the transaction, which is open
        aborted = Marker(0, PRODUCER, 0, 0, False, 1_000)
        await coordinator.transactions.apply_markers([MarkersRead(TOPIC, 0, 0, 1, 0, (aborted,))])
        await turns()
        if is_away:
            coordinator.down = True
            assert len((await locate(coordinates, 20, max_bytes=200)).rows) == 2
            assert (await locate(coordinates, 20, max_bytes=200, committed=True)).error_code == KAFKA_STORAGE_ERROR
            coordinator.down = False
        answers = await read(coordinates, 18, 30, committed=True)
        (answer,) = (answer for answer in answers if any(row.base_offset == 20 for row in answer.rows))
        assert [(one.first_offset, one.producer_id) for one in answer.aborted] == [(20, PRODUCER)]
        assert all(answer.last_stable_offset == 42 for answer in answers)
