"""A wait ends with the event, with the time, or with a cancellation that comes together with the event."""

from __future__ import annotations

import asyncio

import pytest

from proxy.process.waiting import wait_at_most


async def test_it_ends_with_the_event_or_after_the_time() -> None:
    event = asyncio.Event()
    await wait_at_most(event, 0)
    await wait_at_most(event, -1)
    waiting = asyncio.ensure_future(wait_at_most(event, 3600))
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await waiting


async def test_a_cancellation_that_comes_with_the_event_is_not_lost() -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(wait_at_most(event, 3600))
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
