"""An event loop in a thread of its own, for code that Spark calls and that can't wait in a loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

Answer = TypeVar("Answer")
_END = object()


class Background:
    """Runs coroutines while the caller works: storage is read while records are decoded. Use as a context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="diskless-source", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Return the coroutine's result, or raise its error."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[Answer, None]) -> Generator[Answer, None, None]:
        """The items of an asynchronous generator, each asked for while the one before is being worked on.

        The generator is closed at the end, however that comes.
        """

        # A generator can't be closed before the step that was asked for last has ended, cancelled or not.
        one_step = asyncio.Lock()

        async def following() -> Any:
            async with one_step:
                return await anext(items, _END)

        async def close() -> None:
            async with one_step:
                await items.aclose()

        following_item = asyncio.run_coroutine_threadsafe(following(), self._loop)
        try:
            while (item := following_item.result()) is not _END:
                following_item = asyncio.run_coroutine_threadsafe(following(), self._loop)
                yield item
        finally:
            following_item.cancel()
            self.run(close())

    def close(self) -> None:
        """End the loop and its thread; what still runs in it is cancelled."""
        if self._loop.is_closed():
            return
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
