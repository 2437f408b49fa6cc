"""Calls that may be repeated: how often and for how long; and calls that may not."""

from __future__ import annotations

import asyncio

import pytest

from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced
from proxy.coordinator.patience import patiently


class Store:
    def __init__(self, *answers: object, takes_s: float = 0.0) -> None:
        self.answers, self.takes_s, self.asked = list(answers), takes_s, 0

    async def ask(self) -> object:
        self.asked += 1
        await asyncio.sleep(self.takes_s)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_store_that_is_away_for_a_moment_is_asked_again() -> None:
    store = Store(CoordinatorUnavailable("reset"), CoordinatorUnavailable("reset"), "there")
    assert await patiently(store.ask, first_pause_s=0.001) == "there"
    assert store.asked == 3


async def test_the_retries_end() -> None:
    store = Store(*(CoordinatorUnavailable(str(number)) for number in range(9)))
    with pytest.raises(CoordinatorUnavailable, match="3"):
        await patiently(store.ask, tries=4, first_pause_s=0.001)


async def test_nor_where_a_call_has_taken_all_the_time_that_there_is() -> None:
    store = Store(CoordinatorUnavailable("hangs"), "there", takes_s=0.05)
    with pytest.raises(CoordinatorUnavailable, match="hangs"):
        await patiently(store.ask, within_s=0.05)


async def test_a_fenced_shard_stays_so() -> None:
    store = Store(ShardFenced("lost"), "there")
    with pytest.raises(ShardFenced):
        await patiently(store.ask)
    assert store.asked == 1
