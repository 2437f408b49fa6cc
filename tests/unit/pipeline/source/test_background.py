from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from pipeline.source.background import Background


class Source:
    def __init__(self, fail_at: int = -1, wait_at: int = -1) -> None:
        self.fail_at, self.wait_at = fail_at, wait_at
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(5):
                if number == self.fail_at:
                    raise ValueError(f"number {number}")
                if number == self.wait_at:
                    await asyncio.Event().wait()
                yield number
        finally:
            await asyncio.sleep(0)
            self.closed = True


def test_items_come_in_order_and_the_thread_ends() -> None:
    source, before = Source(), threading.active_count()
    with Background() as background:
        assert list(background.iterate(source.items())) == [0, 1, 2, 3, 4]
        assert source.closed
    assert threading.active_count() == before


def test_an_error_comes_where_it_is() -> None:
    source = Source(fail_at=3)
    with Background() as background:
        items = background.iterate(source.items())
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="number 3"):
            next(items)
    assert source.closed


@pytest.mark.parametrize("wait_at", [-1, 1, 2])
def test_an_iterator_that_is_left_early_is_closed(wait_at: int) -> None:
    source = Source(wait_at=wait_at)
    with Background() as background:
        items = background.iterate(source.items())
        assert next(items) == 0
        items.close()  # type: ignore[attr-defined]
        assert source.closed


def test_running_tasks_are_cancelled_at_the_end() -> None:
    ended = threading.Event()
    background = Background()

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def start() -> None:
        tasks.append(asyncio.create_task(for_ever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    background.run(start())
    background.close()
    background.close()
    assert ended.is_set()
