"""Measure the longest step of an event loop, in CPU time of its thread, as a multiple of a unit of work of the same
run."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

UNIT_LOOPS = 20_000


class Steps:
    """Steps measured between two moments."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0
        self.count = 0
        self.not_counted_s = 0.0
        """CPU time that the test itself used within the current step."""


def unit_s() -> float:
    """Measure the CPU time of about a millisecond's work of one thread."""
    taken = []
    for _ in range(9):
        began = time.thread_time()
        total = 0
        for number in range(UNIT_LOOPS):
            total += number & 7
        taken.append(time.thread_time() - began)
    return median(taken)


@contextmanager
def measured_steps() -> Iterator[Steps]:
    """Measure every callback of the loop."""
    steps = Steps()
    run = asyncio.Handle._run

    def measured(self: Any) -> None:
        steps.not_counted_s = 0.0
        began = time.thread_time()
        run(self)
        taken = time.thread_time() - began - steps.not_counted_s
        steps.count += 1
        steps.total_s += taken
        steps.longest_s = max(steps.longest_s, taken)

    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()  # for good: else each collection would search all modules of the test run, for half a second
    asyncio.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.set_threshold(*thresholds)
