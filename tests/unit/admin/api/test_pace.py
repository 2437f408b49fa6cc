"""Requests to the admin port wait in line; requests beyond the limit are rejected."""

from __future__ import annotations

import asyncio

import pytest

from proxy.admin.api.pace import MAX_WAITING, Busy, Pace


async def test_requests_run_one_at_a_time_and_in_order() -> None:
    pace, order, inside = Pace(), list[int](), 0

    async def ask(number: int) -> None:
        nonlocal inside
        async with pace.turn():
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1
            order.append(number)

    await asyncio.gather(*(ask(number) for number in range(20)))
    assert order == list(range(20))


async def test_requests_beyond_the_limit_are_rejected() -> None:
    pace, entered, leave = Pace(), asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with pace.turn():
            entered.set()
            await leave.wait()

    async def come() -> None:
        async with pace.turn():
            pass

    first = asyncio.create_task(stay())
    await entered.wait()
    waiting = [asyncio.create_task(come()) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await come()
    # A request that gives up its place makes room.
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    late = asyncio.create_task(come())
    await asyncio.sleep(0)
    leave.set()
    await asyncio.gather(first, *waiting[1:], late)


async def test_lines_do_not_wait_for_each_other() -> None:
    pace = Pace()
    async with pace.turn():
        waiting = [asyncio.create_task(pace.turn().__aenter__()) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        async with pace.turn("another"), pace.turn("a third"):
            pass
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_turn_that_fails_is_over() -> None:
    pace = Pace()
    with pytest.raises(ValueError, match="no"):
        async with pace.turn():
            raise ValueError("no")
    async with pace.turn():
        pass
