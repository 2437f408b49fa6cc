"""The histories of `test_against_model.py` over a bad network, with proxies that die and whose calls overlap.

Every script call may be lost on its way, or its reply. An operation of several calls may end after any of them, with
its proxy. Calls of several proxies come in any order. A call that its proxy gave up on may arrive once more, much
later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import NoScriptError

from proxy.coordinator import carrying, scripts
from proxy.coordinator.interface import CoordinatorUnavailable, PartitionRun, ProposedBatch, RunAnswer
from proxy.coordinator.redis import RedisCoordinator
from proxy.coordinator.shards import partition_key
from tests.integration.coordinator.conftest import Store
from tests.integration.coordinator.test_against_model import (
    LOGS,
    Histories,
    cut_calls_small,
    loose_batches,
    without_times,
)
from tests.tiers import Tier

MOST_CALLS_KEPT = 50
EXAMPLES_OF_TIER = {Tier.QUICK: 10, Tier.FULL: 60}


class Fault(NamedTuple):
    """A fault in one try of an operation that writes: at the call with this number, counted around if it has fewer."""

    call: int
    carried_out: bool
    """True if only the reply is lost."""


class Network:
    """The way from the coordinator's client to the store: calls that are sent together go one by one."""

    def __init__(self) -> None:
        self.faults: deque[Fault] = deque()
        self.hits = 0
        self.sent: deque[tuple[scripts.Script, scripts.Call]] = deque(maxlen=MOST_CALLS_KEPT)
        """Commits that were carried out, and that may arrive once more."""
        self._turns: list[asyncio.Future[None]] | None = None
        self._done = asyncio.Event()

    def install(self, monkeypatch: Any) -> None:
        """Install it for all clients of this process."""
        evaluate = scripts._evaluate

        async def over_the_network(
            client: Redis, script: scripts.Script, calls: Sequence[scripts.Call], *more: Any
        ) -> list[Any]:
            if script.name in carrying.READING:
                return await evaluate(client, script, calls, *more)
            fault = self.faults.popleft() if self.faults else None
            lost = fault.call % len(calls) if fault is not None and calls else None
            replies: list[Any] = []
            for number, call in enumerate(calls):
                await self._turn()
                if fault is not None and number == lost and not fault.carried_out:
                    self._lose()
                try:
                    replies += await evaluate(client, script, [call], *more)
                except NoScriptError:
                    if fault is not None:
                        self.faults.appendleft(fault)  # the script is loaded, and the operation starts over
                    raise
                finally:
                    self._done.set()
                if script.name == "commit" and not isinstance(replies[-1], scripts.Refusal):
                    self.sent.append((script, call))
                if fault is not None and number == lost:
                    self._lose()
            return replies

        monkeypatch.setattr(scripts, "_evaluate", over_the_network)

    def _lose(self) -> None:
        self.hits += 1
        raise StoreConnectionError("lost")

    async def _turn(self) -> None:
        if self._turns is not None:
            turn = asyncio.get_running_loop().create_future()
            self._turns.append(turn)
            await turn

    async def crossing(self, work: Sequence[Awaitable[Any]], order: Sequence[int]) -> list[Any]:
        """Run all works at a time, one call after the other; `order` decides whose turn it is, once all of them
        wait."""
        self._turns, self._done = [], asyncio.Event()
        tasks = [asyncio.ensure_future(one) for one in work]
        turn = 0
        try:
            while working := sum(not task.done() for task in tasks):
                await asyncio.sleep(0)
                if len(self._turns) == working:
                    self._done.clear()
                    self._turns.pop(order[turn % len(order)] % working).set_result(None)
                    turn += 1
                    await self._done.wait()
            return [task.result() for task in tasks]
        finally:
            self._turns = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class FaultyHistories(Histories):
    network: Network

    def __init__(self) -> None:
        self.network.faults.clear()
        self.network.sent.clear()
        self.granted: dict[tuple[bytes, int], dict[tuple[bytes, int], tuple[int, int]]] = {log: {} for log in LOGS}
        """First answer of each batch in the current life of each log, by segment and batch: base offset and count."""
        self.lives = dict.fromkeys(LOGS, 0)
        self.first_life: dict[tuple[bytes, tuple[bytes, int]], int] = {}
        """Life of a log in which a segment was first committed to it."""
        super().__init__()
        self.another = RedisCoordinator(
            self.client, self.real._settings, producer_id_expiration_ms=86_400_000, producer_batches_remembered=5
        )

    def answered(self, method: str, *arguments: Any) -> Any:
        """Repeat the real operation until it answers; its result must be the model's after one try."""
        while True:
            with suppress(CoordinatorUnavailable):
                return super().answered(method, *arguments)

    def both(self, method: str, *arguments: Any) -> list[Any]:
        real = self.answered(method, *arguments)
        model = self.loop.run_until_complete(attrgetter(method)(self.model)(*arguments))
        if method in ("commit", "find"):
            assert [without_times(answer) for answer in real] == [without_times(answer) for answer in model]
        else:
            assert real == model
        if method == "commit":
            self.note_granted(*arguments, real)
        elif method == "delete_logs":
            for partition in arguments[1]:
                self.granted[arguments[0], partition] = {}
                self.lives[arguments[0], partition] += 1
        return real  # type: ignore[no-any-return]

    def note_granted(self, segment: bytes, runs: Sequence[PartitionRun], answers: Sequence[RunAnswer]) -> None:
        self.ever_used |= self.use().keys()
        for run, answer in zip(runs, answers, strict=True):
            log = run.topic_id, run.partition
            if self.first_life.setdefault((segment, log), self.lives[log]) != self.lives[log]:
                continue  # batches that were answered in an earlier life get the same answer
            granted = self.granted[log]
            for number, (batch, answered_batch) in enumerate(zip(run.batches, answer.batches, strict=False)):
                if answered_batch.error_code or answered_batch.duplicate:
                    continue
                place = answered_batch.base_offset, batch.record_count
                if answered_batch.base_offset < 0 or (segment, number) in granted:
                    assert granted.get((segment, number), place) == place
                else:
                    granted[segment, number] = place

    def new_runs(self, chosen: Sequence[tuple[bytes, int]], batches: Sequence[Sequence[ProposedBatch]]) -> Any:
        """Return a segment's name, and its runs."""
        self.segments += 1
        runs = [PartitionRun(*log, 1, tuple(some)) for log, some in zip(chosen, batches, strict=False)]
        return self.segments.to_bytes(16, "big"), runs

    def carried_out(self, segments: dict[bytes, list[PartitionRun]]) -> list[tuple[bytes, list[PartitionRun]]]:
        """Return the runs of each segment in each of the commits that the network has carried out, in order."""
        done = []
        for _, call in self.network.sent:
            (segment,) = [one for one in segments if any(one in argument for argument in call.arguments[2:])]
            runs = [run for run in segments[segment] if partition_key(run.topic_id, run.partition) in call.arguments[1]]
            done.append((segment, runs))
        return done

    @rule(faults=st.lists(st.builds(Fault, st.integers(0, 3), st.booleans()), min_size=1, max_size=4))
    def trouble_ahead(self, faults: list[Fault]) -> None:
        """Plan faults for the next operations."""
        self.network.faults += faults

    @rule(
        chosen=st.lists(st.sampled_from(LOGS), min_size=1, max_size=6, unique=True),
        batches=st.lists(st.lists(loose_batches, min_size=1, max_size=4), min_size=6, max_size=6),
        fault=st.builds(Fault, st.integers(0, 3), st.booleans()),
        again=st.booleans(),
    )
    def die_in_a_commit(
        self,
        chosen: list[tuple[bytes, int]],
        batches: list[list[ProposedBatch]],
        fault: Fault,
        again: bool,
    ) -> None:
        """The proxy has carried out some of its calls; the producers may send the same through another one."""
        segment, runs = self.new_runs(chosen, batches)
        self.network.faults.clear()
        self.network.faults.append(fault)
        self.network.sent.clear()
        with suppress(CoordinatorUnavailable):
            self.loop.run_until_complete(self.real.commit(segment, runs))
        done = self.carried_out({segment: runs})
        for _, some in done:
            answered_batch = self.loop.run_until_complete(self.model.commit(segment, some))
            self.note_granted(segment, some, answered_batch)
        self.committed.append((segment, [run for _, some in done for run in some]))
        if again:
            self.segments += 1
            self.both("commit", self.segments.to_bytes(16, "big"), runs)

    @rule(which=st.lists(st.integers(0, 1000), max_size=2))
    def producers_send_again(self, which: list[int]) -> None:
        """Send the same batches in another segment: through another proxy, or after an answer was lost after the
        proxy."""
        for number in which if self.committed else ():
            _, runs = self.committed[number % len(self.committed)]
            self.segments += 1
            segment = self.segments.to_bytes(16, "big")
            self.both("commit", segment, runs)
            self.committed.append((segment, runs))

    @rule(
        chosen=st.lists(st.lists(st.sampled_from(LOGS), min_size=1, max_size=6, unique=True), min_size=2, max_size=3),
        batches=st.lists(st.lists(loose_batches, min_size=1, max_size=3), min_size=6, max_size=6),
        order=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    )
    def commits_cross(
        self, chosen: list[list[tuple[bytes, int]]], batches: list[list[ProposedBatch]], order: list[int]
    ) -> None:
        """Commit from several proxies, with batches of the same producers; the model follows the store's order."""
        self.network.faults.clear()
        segments = [self.new_runs(logs, batches) for logs in chosen]
        proxies = [self.real, self.another, self.real]
        self.network.sent.clear()
        work = [proxy.commit(*one) for proxy, one in zip(proxies, segments, strict=False)]
        real = self.loop.run_until_complete(self.network.crossing(work, order))
        answered_batch: dict[bytes, dict[tuple[bytes, int], RunAnswer]] = {segment: {} for segment, _ in segments}
        for segment, some in self.carried_out(dict(segments)):
            answers = self.loop.run_until_complete(self.model.commit(segment, some))
            self.note_granted(segment, some, answers)
            answered_batch[segment] |= {(answer.topic_id, answer.partition): answer for answer in answers}
        for (segment, runs), answers in zip(segments, real, strict=True):
            expected = [answered_batch[segment][run.topic_id, run.partition] for run in runs]
            assert [without_times(one) for one in answers] == [without_times(one) for one in expected]
            self.committed.append((segment, runs))

    @rule(which=st.integers(0, 1000))
    def a_call_comes_once_more(self, which: int) -> None:
        """No proxy waits for it any more; it changes nothing if its log has lived all the time."""
        if not self.network.sent:
            return
        script, call = self.network.sent[which % len(self.network.sent)]
        committed = dict(self.committed)
        segment = next((one for one in committed if any(one in argument for argument in call.arguments[2:])), None)
        if segment is None:
            return
        self.network.faults.clear()
        carried = [run for run in committed[segment] if partition_key(run.topic_id, run.partition) in call.arguments[1]]
        self.loop.run_until_complete(scripts.run_all(self.client, script.name, [call]))
        answered_batch = self.loop.run_until_complete(self.model.commit(segment, carried))
        self.note_granted(segment, carried, answered_batch)

    @invariant()
    def offsets_were_given_densely_and_once(self) -> None:
        """Use the answers only, whatever the index contains."""
        for log, granted in self.granted.items():
            end = 0
            for base, count in sorted(granted.values()):
                assert base == end, f"{log}: offset {base} was given where {end} was to be"
                end = base + count
            (described,) = self.loop.run_until_complete(self.real.describe(log[0], [log[1]]))
            assert described is None or described.high_watermark == end


@pytest.mark.timeout(300)
def test_random_histories_with_faults(store: Store, monkeypatch, pytestconfig: pytest.Config) -> None:
    cut_calls_small(monkeypatch)
    FaultyHistories.store = store
    FaultyHistories.network = Network()
    FaultyHistories.network.install(monkeypatch)
    examples = EXAMPLES_OF_TIER[pytestconfig.getoption("tier")]
    run_state_machine_as_test(
        FaultyHistories,
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            database=None,
        ),
    )
    assert FaultyHistories.network.hits > examples // 4, "hardly any call was lost"
