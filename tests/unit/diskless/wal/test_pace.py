"""When a segment ends, and how many PUTs a budget allows: a small model of the buffer, with random traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.diskless.wal.pace import BURST_PUTS, Deadline, PutBudget

INTERVAL_S = 0.25
TODAY = 1 / INTERVAL_S
gaps = st.lists(st.floats(0, 1.0), min_size=1, max_size=60)
rates = st.sampled_from([TODAY, 8.0, 16.0, 40.0])


@dataclass
class Model:
    """Fills segments as the buffer does. Time goes from event to event."""

    budget: PutBudget
    put_s: float = 0.0
    max_underway: int = 1
    full: int = 10**9
    """Number of batches that fill a segment."""
    interval_s: float = INTERVAL_S
    now_s: float = 0.0
    puts: list[tuple[float, list[float], bool]] = field(default_factory=list)
    """Time of each PUT, the times at which its batches came, and whether the segment was full."""
    underway: list[float] = field(default_factory=list)
    """Times at which segments under way are committed."""
    open: list[float] = field(default_factory=list)
    deadline: Deadline = field(default_factory=Deadline)

    def ends_s(self) -> float:
        if not self.open:
            return math.inf
        return self.deadline.ends_s(self.now_s, self.budget, may_begin=len(self.underway) < self.max_underway)

    def end(self, *, full: bool = False) -> None:
        self.budget.take(self.now_s)
        self.puts.append((self.now_s, self.open, full))
        self.underway.append(self.now_s + self.put_s)
        self.open, self.deadline = [], Deadline()

    def run_until(self, until_s: float) -> None:
        while True:
            done_s = min(self.underway, default=math.inf)
            at_s = min(self.ends_s(), done_s)
            if at_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            self.now_s = max(self.now_s, at_s)
            if done_s <= self.now_s:
                self.underway.remove(done_s)
            elif self.ends_s() <= self.now_s:
                self.end()

    def batch(self, at_s: float, patience_s: float = 0.0) -> None:
        self.run_until(at_s)
        self.deadline.add(self.now_s, self.interval_s, patience_s)
        self.open.append(self.now_s)
        if len(self.open) >= self.full:
            self.end(full=True)

    def finish(self) -> None:
        self.run_until(self.now_s + 1_000)


def times(gaps: list[float]) -> list[float]:
    at_s, found = 0.0, []
    for gap in gaps:
        at_s += gap
        found.append(at_s)
    return found


@example([0.01] * 60, TODAY, 0.0, 3, 40)  # more requests than a burst, which random gaps rarely are
@given(gaps, rates, st.floats(0, 1.0), st.integers(0, 3), st.integers(2, 40))
def test_the_budget_holds_over_every_window(
    gaps: list[float], rate: float, put_s: float, max_underway: int, full: int
) -> None:
    model = Model(PutBudget(rate), put_s, max_underway, full)
    for at_s in times(gaps):
        model.batch(at_s)
    model.finish()
    of_time = [at_s for at_s, _, is_full in model.puts if not is_full]
    for first, begin_s in enumerate(of_time):
        for count, end_s in enumerate(of_time[first:], 1):
            assert count <= BURST_PUTS + rate * (end_s - begin_s) + 1e-3


@given(gaps, rates, st.floats(0, 1.0), st.integers(0, 3), st.integers(2, 40))
def test_no_batch_waits_longer_than_the_interval(
    gaps: list[float], rate: float, put_s: float, max_underway: int, full: int
) -> None:
    model = Model(PutBudget(rate), put_s, max_underway, full)
    for at_s in times(gaps):
        model.batch(at_s)
    model.finish()
    came = [one for _, batches, _ in model.puts for one in batches]
    assert came == times(gaps), "each batch is in one segment, in order"
    assert all(at_s - batches[0] <= INTERVAL_S + 1e-9 for at_s, batches, _ in model.puts)


@given(gaps, st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=60, max_size=60))
def test_patient_batches_wait_for_their_topics_time_at_most(gaps: list[float], patience: list[float]) -> None:
    model = Model(PutBudget(TODAY), 0.05)
    waits = {at_s: max(INTERVAL_S, one) for at_s, one in zip(times(gaps), patience, strict=False)}
    for at_s, one in zip(times(gaps), patience, strict=False):
        model.batch(at_s, one)
    model.finish()
    assert all(at_s - one <= waits[one] + 1e-9 for at_s, batches, _ in model.puts for one in batches)


@pytest.mark.parametrize("per_second", [1, 2, 3, TODAY])
def test_traffic_below_the_budget_does_not_wait(per_second: float) -> None:
    model = Model(PutBudget(TODAY), 0.055)
    for number in range(100):
        model.batch(number / per_second)
    model.finish()
    assert len(model.puts) == 100
    assert all(at_s == pytest.approx(batches[0], abs=1e-6) for at_s, batches, _ in model.puts)


@pytest.mark.parametrize("put_s", [0.005, 0.055, 0.4])
def test_saturating_traffic_makes_as_many_puts_as_the_interval_alone(put_s: float) -> None:
    per_second = 200
    by_budget, by_interval = Model(PutBudget(TODAY), put_s), Model(PutBudget(TODAY), put_s, max_underway=0)
    for number in range(60 * per_second):
        for model in (by_budget, by_interval):
            model.batch(number / per_second)
    assert len(by_budget.puts) <= 1.02 * len(by_interval.puts) + BURST_PUTS
    waits = [at_s - one for at_s, batches, _ in by_budget.puts for one in batches]
    assert sum(waits) / len(waits) <= INTERVAL_S / 2 + 1 / per_second


@given(st.floats(0.01, 0.24), rates)
def test_full_segments_leave_no_tokens_for_early_ones(gap_s: float, rate: float) -> None:
    model = Model(PutBudget(rate), 0.0, full=10)
    while len(model.puts) < BURST_PUTS + rate / TODAY:
        model.batch(model.now_s + gap_s / rate * TODAY / 10)
    began = len(model.puts)
    for _ in range(300):
        model.batch(model.now_s + gap_s / rate * TODAY / 10)
    early = [batches for _, batches, is_full in model.puts[began:] if not is_full]
    assert len(early) <= 1 + BURST_PUTS / (1 - gap_s / INTERVAL_S)


def test_a_budget_saves_up_a_burst_and_no_more() -> None:
    budget = PutBudget(4.0)
    for _ in range(int(BURST_PUTS)):
        assert budget.wait_s(100.0) == 0
        budget.take(100.0)
    assert budget.wait_s(100.0) == pytest.approx(0.25)
    budget.take(100.0)
    assert budget.wait_s(100.0) == pytest.approx(0.25), "there is no debt"
    assert budget.wait_s(100.25) == 0
    for _ in range(int(BURST_PUTS)):
        budget.take(1_000.0)
    assert budget.wait_s(1_000.0) == pytest.approx(0.25)


def test_a_budget_of_nothing_has_no_token_after_its_burst() -> None:
    budget = PutBudget(0.0, burst=1.0)
    budget.take(0.0)
    assert budget.wait_s(1e9) == math.inf


def test_only_patient_batches_take_no_token() -> None:
    budget, deadline = PutBudget(4.0), Deadline()
    assert deadline.add(0.0, INTERVAL_S, 2.0)
    assert deadline.ends_s(0.0, budget, may_begin=True) == 2.0
    assert not deadline.add(0.5, INTERVAL_S, 2.0)
    assert deadline.add(1.0, INTERVAL_S, 0.0), "a batch in a hurry takes the others along"
    assert deadline.ends_s(1.0, budget, may_begin=True) == 1.0
    assert deadline.ends_s(1.0, budget, may_begin=False) == 1.0 + INTERVAL_S
    assert not deadline.add(1.1, INTERVAL_S, 0.0)
