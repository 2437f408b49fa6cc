"""Work that may pause: a generator that pauses at each `yield`, and what comes of it.

Small work is done `at_once`; the work of a large message is done in slices, by `turns.Turns`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work between two pauses takes a few hundred microseconds at most."""

LARGE_BYTES = 4096
"""A request body that is longer is handled in slices."""
AT_A_TIME = 128
"""Elements (topics, partitions) between two pauses."""

Item = TypeVar("Item")


def in_slices(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """Return the items, as many at a time as are handled between two pauses."""
    if len(items) <= AT_A_TIME:
        return (items,)
    return (items[start : start + AT_A_TIME] for start in range(0, len(items), AT_A_TIME))


def at_once(steps: Steps[Result]) -> Result:
    """Do work without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
