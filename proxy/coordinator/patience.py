"""Retries of coordinator calls that may be repeated, for moments in which the store does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced

Answer = TypeVar("Answer")

_TRIES = 7
_FIRST_PAUSE_S = 0.05
"""First pause. Each pause is twice the previous one, limited by the time that is left."""


async def patiently(
    call: Callable[[], Awaitable[Answer]],
    *,
    tries: int = _TRIES,
    first_pause_s: float = _FIRST_PAUSE_S,
    within_s: float = inf,
) -> Answer:
    """Return the answer of a call that may be repeated, after at most `tries` tries within `within_s`.

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
