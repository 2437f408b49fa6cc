"""Batches that arrive early are held, accepted in order, and rejected if the missing batches do not arrive."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import CoordinatorUnavailable, PartitionRun, ProposedBatch, RunAnswer
from proxy.diskless.wal.holds import Holds
from proxy.diskless.wal.outcome import Outcome
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    REQUEST_TIMED_OUT,
    THROTTLING_QUOTA_EXCEEDED,
)
from tests.coordinator_model import ModelCoordinator

TOPIC = b"t" * 16
PRODUCER = 7
LONG_S = 60.0
_OUT_OF_ORDER, _DOWN = OUT_OF_ORDER_SEQUENCE_NUMBER, CoordinatorUnavailable("no")


class Coordinator(ModelCoordinator):
    """Counts commits; `failure` is raised by the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.failure: Exception | None = None
        self.refusal = NONE
        """Run error of the next ones, which are not looked at."""
        self.tried = asyncio.Event()

    async def commit(self, segment, runs, *, not_after_ms=0):
        self.commits += 1
        self.tried.set()
        if self.failure is not None:
            raise self.failure
        if self.refusal:
            return [RunAnswer(run.topic_id, run.partition, self.refusal, (), -1, -1) for run in runs]
        return await super().commit(segment, runs, not_after_ms=not_after_ms)


class Proxy:
    """Commits runs as the WAL buffer does, and passes early batches to its holds."""

    def __init__(self, coordinator: Coordinator, hold_s: float = LONG_S, max_batches: int = 100) -> None:
        self.coordinator = coordinator
        self.holds = Holds(coordinator, hold_s=hold_s, max_batches=max_batches)
        self.settled: dict[int, Outcome] = {}

    async def commit(self, *sequences: int, producer_id: int = PRODUCER, epoch: int = 0) -> None:
        await self.commit_run(*(ProposedBatch(100, 1, 5, producer_id, epoch, sequence) for sequence in sequences))

    async def commit_run(self, *batches: ProposedBatch) -> None:
        run, segment = PartitionRun(TOPIC, 0, 1, batches), os.urandom(16)
        (answer,) = await self.coordinator.commit(segment, [run])
        waiting = [partial(self.settle, batch.base_sequence) for batch in batches]
        held = self.holds.take(segment, run, answer, waiting)
        for place, batch in enumerate(answer.batches):
            if place not in held:
                waiting[place](Outcome(batch.error_code, batch.base_offset, duplicate=batch.duplicate))

    def settle(self, sequence: int, outcome: Outcome) -> None:
        assert sequence not in self.settled, "each is settled once"
        self.settled[sequence] = outcome

    def codes(self) -> dict[int, int]:
        return {sequence: outcome.error_code for sequence, outcome in sorted(self.settled.items())}


async def make(hold_s: float = LONG_S, max_batches: int = 100) -> Proxy:
    coordinator = Coordinator()
    await coordinator.create_logs(TOPIC, [0])
    return Proxy(coordinator, hold_s, max_batches)


async def test_an_early_batch_waits_for_the_batches_before_it() -> None:
    proxy = await make()
    await proxy.commit(1, 2)
    assert (proxy.settled, proxy.holds.held_batches) == ({}, 2)
    other = Proxy(proxy.coordinator)
    await other.commit(0)
    await proxy.holds.drain()
    assert proxy.codes() == {1: NONE, 2: NONE}
    assert [proxy.settled[sequence].base_offset for sequence in (1, 2)] == [1, 2]
    assert proxy.holds.held_batches == 0


async def test_when_nothing_comes_the_answer_is_that_it_is_out_of_order() -> None:
    proxy = await make(hold_s=0.01)
    await proxy.commit(3)
    await proxy.holds.drain()
    assert proxy.codes() == {3: _OUT_OF_ORDER}
    assert proxy.coordinator.commits > 1
    assert proxy.coordinator.logs[TOPIC, 0].end == 0


async def test_the_longer_it_takes_the_less_often_the_store_is_asked() -> None:
    proxy = await make(hold_s=1.0)
    await proxy.commit(3)
    await proxy.holds.drain()
    assert proxy.coordinator.commits <= 9, "after 5 ms, and each time after twice as long"


async def test_an_impossible_batch_is_not_held() -> None:
    proxy = await make()
    await proxy.commit(0, producer_id=8)  # the log is to hold records
    proxy.settled.clear()
    await proxy.commit(*range(1, 8))
    await proxy.commit(0)
    assert proxy.codes() == {0: _OUT_OF_ORDER} | dict.fromkeys(range(1, 8), NONE)
    assert proxy.holds.held_batches == 0


async def test_without_time_to_hold_nothing_is_held() -> None:
    proxy = await make(hold_s=0.0)
    await proxy.commit(1)
    assert (proxy.codes(), proxy.coordinator.commits) == ({1: _OUT_OF_ORDER}, 1)


async def test_nothing_is_held_after_a_batch_that_was_rejected_here() -> None:
    proxy = await make()
    proxy.holds.refused(TOPIC, 0, PRODUCER)
    await proxy.commit(1)
    await proxy.commit(1, producer_id=8)
    assert (proxy.codes(), proxy.holds.held_batches) == ({1: _OUT_OF_ORDER}, 1)
    await proxy.holds.close()


async def test_a_store_that_does_not_answer_is_asked_again() -> None:
    proxy = await make()
    await proxy.commit(1)
    proxy.coordinator.failure = _DOWN
    proxy.coordinator.tried.clear()
    await proxy.coordinator.tried.wait()
    proxy.coordinator.failure = None
    await Proxy(proxy.coordinator).commit(0)
    await proxy.holds.drain()
    assert proxy.codes() == {1: NONE}


async def test_a_store_that_never_answers_leaves_it_open_what_became_of_it() -> None:
    proxy = await make(hold_s=0.01)
    await proxy.commit(1)
    proxy.coordinator.failure = _DOWN
    await proxy.holds.drain()
    assert proxy.codes() == {1: REQUEST_TIMED_OUT}


@pytest.mark.parametrize("error_code", [KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED])
async def test_a_run_that_is_rejected_meanwhile_is_certainly_not_stored(error_code: int) -> None:
    proxy = await make()
    await proxy.commit(1)
    proxy.coordinator.refusal = error_code
    await proxy.holds.drain()
    assert proxy.codes() == {1: KAFKA_STORAGE_ERROR}


async def test_nobody_knows_where_a_refusal_follows_a_try_that_was_not_answered() -> None:
    proxy = await make()
    await proxy.commit(1)
    proxy.coordinator.failure = _DOWN
    proxy.coordinator.tried.clear()
    await proxy.coordinator.tried.wait()
    proxy.coordinator.failure, proxy.coordinator.refusal = None, KAFKA_STORAGE_ERROR
    await proxy.holds.drain()
    assert proxy.codes() == {1: REQUEST_TIMED_OUT}


async def test_no_more_are_held_than_may_be() -> None:
    proxy = await make(max_batches=2)
    await proxy.commit(1, 2)
    await proxy.commit(3)
    assert (proxy.codes(), proxy.holds.held_batches) == ({3: _OUT_OF_ORDER}, 2)
    await proxy.holds.close()


async def test_nothing_of_a_run_above_the_hold_limit_is_stored_later() -> None:
    proxy = await make(hold_s=0.05, max_batches=2)
    await proxy.commit(1, 2, 3)
    await Proxy(proxy.coordinator).commit(0)
    await proxy.holds.drain()
    assert proxy.codes() == dict.fromkeys((1, 2, 3), _OUT_OF_ORDER)
    assert proxy.coordinator.logs[TOPIC, 0].end == 1


async def test_a_batch_whose_producer_got_an_answer_is_not_stored_by_another_hold() -> None:
    """Java before 2.5 renumbers the batches after a rejected one, within the same epoch."""
    proxy = await make(hold_s=0.05)
    proxy.holds.refused(TOPIC, 0, PRODUCER)
    await proxy.commit_run(ProposedBatch(100, 1, 5, PRODUCER, 0, 1), ProposedBatch(100, 1, 5, PRODUCER + 1, 0, 3))
    again = Proxy(proxy.coordinator)
    await again.commit(0)
    await proxy.holds.drain()
    assert proxy.codes() == {1: _OUT_OF_ORDER, 3: _OUT_OF_ORDER}
    assert proxy.coordinator.logs[TOPIC, 0].end == 1
    await again.commit(1)
    assert again.settled[1] == Outcome(NONE, base_offset=1)


async def test_a_topic_that_is_deleted_meanwhile_gets_its_error() -> None:
    proxy = await make()
    await proxy.commit(1)
    await proxy.coordinator.delete_logs(TOPIC, [0])
    await proxy.holds.drain()
    assert proxy.codes() == {1: 3}


@pytest.mark.parametrize("begun", [False, True])
async def test_closing_settles_every_batch(begun: bool) -> None:
    proxy = await make()
    await proxy.commit(1)
    await proxy.commit(2)
    if begun:
        await asyncio.sleep(0)
    await proxy.holds.close()
    assert proxy.codes() == {1: KAFKA_STORAGE_ERROR, 2: KAFKA_STORAGE_ERROR}


@settings(deadline=None)
@given(order=st.sampled_from(list(permutations(range(5)))), where=st.lists(st.integers(0, 2), min_size=5, max_size=5))
async def test_batches_in_any_order_at_any_proxies_are_stored_in_the_producers_order(order, where) -> None:
    first = await make()
    proxies = [first, Proxy(first.coordinator), Proxy(first.coordinator)]
    for sequence in order:
        await proxies[where[sequence]].commit(sequence)
    for proxy in proxies:
        await proxy.holds.drain()
    settled = {sequence: outcome for proxy in proxies for sequence, outcome in proxy.settled.items()}
    assert {sequence: (one.error_code, one.base_offset) for sequence, one in settled.items()} == {
        sequence: (NONE, sequence) for sequence in range(5)
    }
