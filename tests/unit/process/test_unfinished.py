"""Work that goes on without its caller, and work that is dropped with it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from proxy.process.unfinished import Unfinished, drop


async def test_work_goes_on_if_its_caller_is_cancelled() -> None:
    unfinished, release, done = Unfinished(), asyncio.Event(), list[str]()

    async def work() -> None:
        await release.wait()
        done.append("done")

    caller = asyncio.create_task(unfinished.see_through(work()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    release.set()
    await unfinished.finish()
    assert done == ["done"]


@pytest.mark.parametrize("steps", range(4))
async def test_a_dropped_task_ends_and_what_it_raised_is_not_logged(steps: int) -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ConnectionError("the broker ended the connection")

    task = asyncio.create_task(fail())
    for _ in range(steps):
        await asyncio.sleep(0)
    drop(task)
    await asyncio.wait([task])
    assert task.cancelled() == (steps < 2)
    del task
    gc.collect()
    assert not logged
