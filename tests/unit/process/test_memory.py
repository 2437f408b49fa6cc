"""The memory budget: bounded, in order, and every waiter is served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.process.memory import MemoryBudget


def _not_wanted() -> bool:
    """Ignore the bytes: the caller does not need them any more."""
    return False


class Waiter:
    """Requests bytes, and accepts them when they are granted later."""

    def __init__(self, budget: MemoryBudget, size: int) -> None:
        self.has_it = budget.try_take(size, self._granted)

    def _granted(self) -> bool:
        assert not self.has_it, "granted twice"
        self.has_it = True
        return True


def test_bytes_are_taken_and_given_back():
    budget = MemoryBudget(10)
    assert budget.try_take(6, _not_wanted)
    assert not budget.try_take(6, _not_wanted)
    budget.give_back(6)
    assert budget.try_take(6, _not_wanted)
    assert budget.used_bytes == 6


def test_a_request_larger_than_the_whole_budget_is_admitted_alone():
    budget = MemoryBudget(10)
    assert budget.try_take(100, _not_wanted)
    assert not budget.try_take(1, _not_wanted)
    budget.give_back(100)
    assert budget.try_take(1, _not_wanted)
    assert not budget.try_take(100, _not_wanted)


def test_waiters_are_served_in_order():
    budget = MemoryBudget(10)
    budget.try_take(10, _not_wanted)
    waiters = [Waiter(budget, 5) for _ in range(3)]
    budget.give_back(10)
    assert [waiter.has_it for waiter in waiters] == [True, True, False]


def test_a_waiter_that_is_gone_does_not_keep_others_waiting():
    budget = MemoryBudget(10)
    budget.try_take(10, _not_wanted)
    assert not budget.try_take(5, _not_wanted)
    alive = Waiter(budget, 5)
    budget.give_back(10)
    assert alive.has_it


def test_a_waiter_that_gives_up_lets_later_ones_pass():
    budget = MemoryBudget(10)
    budget.try_take(6, _not_wanted)
    large = Waiter(budget, 8)
    small = Waiter(budget, 2)
    budget.withdraw(large._granted)
    assert (large.has_it, small.has_it, budget.contended, budget.used_bytes) == (False, True, False, 8)


def test_a_large_request_is_not_overtaken_by_smaller_ones():
    budget = MemoryBudget(10)
    budget.try_take(6, _not_wanted)
    large = Waiter(budget, 8)
    assert not budget.try_take(2, _not_wanted)
    budget.give_back(6)
    assert large.has_it


def test_a_waiter_that_does_not_fit_yet_keeps_its_place():
    budget = MemoryBudget(10)
    budget.try_take(6, _not_wanted)
    budget.try_take(4, _not_wanted)
    first, second = Waiter(budget, 8), Waiter(budget, 8)
    budget.give_back(4)
    assert not first.has_it
    budget.give_back(6)
    assert (first.has_it, second.has_it) == (True, False)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_everyone_gets_their_turn_and_the_bound_holds(sizes, random):
    budget = MemoryBudget(10)
    waiters = [Waiter(budget, size) for size in sizes]
    open_ones = set(range(len(sizes)))
    while open_ones:
        holding = [place for place in open_ones if waiters[place].has_it]
        assert holding, "all wait, and nobody holds what they wait for"
        held = [sizes[place] for place in holding]
        assert budget.used_bytes == sum(held)
        assert sum(held) <= 10 or len(held) == 1
        done = random.choice(holding)
        open_ones.discard(done)
        waiters[done].has_it = False
        budget.give_back(sizes[done])
