"""Asking about many partitions, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_A_TIME = 8
"""Topics or partitions that are looked at at a time."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def gathered(work: Callable[[Item], Awaitable[Answer]], items: Iterable[Item]) -> list[Answer]:
    """Return the results of `work` for each item, in their order; the first error ends all."""
    permits = asyncio.Semaphore(AT_A_TIME)

    async def one(item: Item) -> Answer:
        async with permits:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
