"""Calls of the coordinator that may be repeated are, where the store does not answer for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced

Answer = TypeVar("Answer")

_TRIES = 7
_FIRST_PAUSE_S = 0.05
"""Each pause is twice the one before, but for what is left of the time."""


async def patiently(
    call: Callable[[], Awaitable[Answer]],
    *,
    tries: int = _TRIES,
    first_pause_s: float = _FIRST_PAUSE_S,
    within_s: float = inf,
) -> Answer:
    """The answer of a call that may be repeated; it is, up to `tries` in all, as long as `within_s` is not over.

    Raises ShardFenced at once, and CoordinatorUnavailable after the last try.
    """
    loop = asyncio.get_running_loop()
    until_s, pause_s = loop.time() + within_s, first_pause_s
    for _ in range(tries - 1):
        try:
            return await call()
        except ShardFenced:
            raise
        except CoordinatorUnavailable:
            if (left_s := until_s - loop.time()) <= 0:
                raise
            await asyncio.sleep(min(pause_s, left_s))
            pause_s *= 2
    return await call()
