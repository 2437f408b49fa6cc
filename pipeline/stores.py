"""The coordinator and object storage, as driver and tasks open them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from pipeline.errors import PipelineError
from pipeline.logs import patiently
from proxy.config import Settings
from proxy.inspection.stores import Stores, open_stores
from proxy.inspection.stores import opened as for_reading
from proxy.storage import ObjectStorage, open_storage


@asynccontextmanager
async def opened(settings: Settings, *, patient: bool = False) -> AsyncIterator[Stores]:
    """Open the stores that a proxy with these settings would use, without trying them out by writing.

    This works in a task as on the driver: settings are pickled with the task. With `patient` an unresponsive
    coordinator is asked again, because hours of work may depend on it. Raises StorageError if storage can't be used,
    CoordinatorUnavailable if the coordinator does not answer, StoreUnfit if they don't belong together: a job would
    swap rows of one deployment for objects of another.
    """
    async with AsyncExitStack() as opening:

        async def open_() -> Stores:
            return await opening.enter_async_context(open_stores(settings, of_one_deployment=True))

        yield await (patiently(open_) if patient else open_())


@contextmanager
def opened_by_driver(settings: Settings) -> Iterator[tuple[Stores, asyncio.Runner]]:
    """For a driver, which waits for Spark between its calls: the stores, and the loop to call them in. Raises as
    `opened` does."""
    with asyncio.Runner() as runner:
        closing_later = AsyncExitStack()
        stores = runner.run(closing_later.enter_async_context(opened(settings)))
        try:
            yield stores, runner
        finally:
            runner.run(closing_later.aclose())


@asynccontextmanager
async def storage_opened(settings: Settings) -> AsyncIterator[ObjectStorage]:
    """Object storage alone, for tasks that need no coordinator. Raises StorageError."""
    async with for_reading(open_storage(settings.storage, settings.storage_class)) as storage:
        yield storage


def swaps_within_ms(settings: Settings) -> int:
    """Return how long after the beginning of an upload its swap may come.

    Later the object may have been swept as an orphan, deleted, and forgotten. Half of the age is left for clocks that
    differ, as with commits of proxies. Raises PipelineError if objects are swept at any age.
    """
    if not settings.garbage.orphan_age_ms:
        raise PipelineError(
            "garbage.orphan_age_ms is 0: objects may be deleted before their rows are swapped; set it to an hour or so"
        )
    return max(1, settings.garbage.orphan_age_ms // 2)


def swap_before_ms(stores: Stores) -> int:
    """`not_after_ms` for `Coordinator.replace`, of objects whose upload begins later. Raises PipelineError."""
    within_ms = swaps_within_ms(stores.settings)
    deadline_ms = stores.coordinator.deadline_ms(within_ms)
    return time.time_ns() // 1_000_000 + within_ms if deadline_ms is None else deadline_ms
