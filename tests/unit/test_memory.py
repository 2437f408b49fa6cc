"""The memory budget: bounded, in line, and nobody who waits is forgotten."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from proxy.memory import MemoryBudget

MANY = 2_000
"""Waiters; more than the interpreter's stack could hold if each were woken by the one before."""


def _not_again() -> None:
    """For who does not want the bytes any more."""


async def _turns():
    """Let wake-ups that were put off to the next turn of the loop happen."""
    for _ in range(3):
        await asyncio.sleep(0)


class Waiter:
    """Asks for bytes, and asks again when it is told to."""

    def __init__(self, budget: MemoryBudget, size: int, *, returns: bool = False) -> None:
        self.budget = budget
        self.size = size
        self.returns = returns
        self.has_it = False

    def ask(self):
        self.has_it = self.budget.try_take(self.size, self.ask)
        if self.has_it and self.returns:
            self.budget.give_back(self.size)
        return self


async def test_bytes_are_taken_and_given_back():
    budget = MemoryBudget(10)
    assert budget.try_take(6, _not_again)
    assert not budget.try_take(6, _not_again)
    budget.give_back(6)
    await _turns()
    assert budget.try_take(6, _not_again)
    assert budget.used_bytes == 6


async def test_what_is_larger_than_the_whole_budget_is_let_in_alone():
    budget = MemoryBudget(10)
    assert budget.try_take(100, _not_again)
    assert not budget.try_take(1, _not_again)
    budget.give_back(100)
    await _turns()
    assert budget.try_take(1, _not_again)
    assert not budget.try_take(100, _not_again)


async def test_who_waits_is_woken_in_line():
    budget = MemoryBudget(10)
    budget.try_take(10, _not_again)
    waiters = [Waiter(budget, 5).ask() for _ in range(3)]
    budget.give_back(10)
    await _turns()
    assert [waiter.has_it for waiter in waiters] == [True, True, False]


async def test_a_waiter_that_is_gone_does_not_keep_others_waiting():
    budget = MemoryBudget(10)
    budget.try_take(10, _not_again)
    assert not budget.try_take(5, _not_again)
    alive = Waiter(budget, 5).ask()
    budget.give_back(10)
    await _turns()
    assert alive.has_it


async def test_a_large_request_is_not_overtaken_by_smaller_ones():
    budget = MemoryBudget(10)
    budget.try_take(6, _not_again)
    large = Waiter(budget, 8).ask()
    assert not budget.try_take(2, _not_again)
    budget.give_back(6)
    await _turns()
    assert large.has_it


async def test_who_is_woken_in_vain_keeps_its_place():
    budget = MemoryBudget(10)
    budget.try_take(6, _not_again)
    budget.try_take(4, _not_again)
    first, second = Waiter(budget, 8).ask(), Waiter(budget, 8).ask()
    budget.give_back(4)
    await _turns()
    assert not first.has_it
    budget.give_back(6)
    await _turns()
    assert (first.has_it, second.has_it) == (True, False)


async def test_many_who_wait_and_are_done_at_once_need_no_stack():
    budget = MemoryBudget(10)
    budget.try_take(10, _not_again)
    waiters = [Waiter(budget, 1, returns=True).ask() for _ in range(MANY)]
    budget.give_back(10)
    await _turns()
    assert all(waiter.has_it for waiter in waiters)
    assert budget.used_bytes == 0


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.randoms(use_true_random=False))
async def test_everyone_gets_their_turn_and_the_bound_holds(sizes, random):
    budget = MemoryBudget(10)
    waiters = [Waiter(budget, size).ask() for size in sizes]
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
        await _turns()
