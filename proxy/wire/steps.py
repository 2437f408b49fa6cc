"""Work that may pause: a generator that pauses at each `yield`, and what comes of it.

Small work is done `at_once`; the work of a large message is done in slices, by `turns.Turns`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from proxy.wire.errors import ProtocolError
from proxy.wire.primitives import Buffer

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work between two pauses takes a few hundred microseconds at most."""

Rewrite = Callable[[memoryview], list[Buffer] | Steps[list[Buffer]]]
"""Turns the body of a broker's answer into the client's; work that may be long pauses."""

LARGE_BYTES = 4096
"""A request body that is longer is handled in slices."""
AT_A_TIME = 128
"""Elements (topics, partitions) between two pauses."""
_AT_ONCE = 8
"""Pauses that are left out at the beginning of work, so that a message of ordinary size does not wait for a turn."""

Item = TypeVar("Item")


def in_slices(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """Return the items, as many at a time as are handled between two pauses."""
    if len(items) <= AT_A_TIME:
        return (items,)
    return (items[start : start + AT_A_TIME] for start in range(0, len(items), AT_A_TIME))


def emptied(*containers: list[Any] | dict[Any, Any]) -> Steps[None]:
    """Empty lists and dicts, with pauses: to free 40,000 objects in one step takes longer than a step may."""
    for container in containers:
        while container:
            if isinstance(container, dict):
                for _ in range(min(AT_A_TIME, len(container))):
                    container.popitem()
            else:
                del container[-AT_A_TIME:]
            yield


def at_once(steps: Steps[Result]) -> Result:
    """Do work without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result


def begin(steps: Steps[Result]) -> Result | Steps[Result]:
    """Do the first pauses' worth of the work; return the result, or the work that goes on where it stopped."""
    try:
        for _ in range(_AT_ONCE):
            next(steps)
    except StopIteration as done:
        result: Result = done.value
        return result
    return steps


class Pausing(Generic[Parameters, Result]):
    """A parser that may pause: a call does all of its work, `steps` pauses. Both raise ProtocolError as `parsing`."""

    def __init__(self, walk: Callable[Parameters, Steps[Result]]) -> None:
        """`walk` runs off the end of its data, or meets text that is not UTF-8, without a check of its own."""
        self._walk = walk
        self.__doc__ = walk.__doc__

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Parse without a pause."""
        return at_once(self.steps(*args, **kwargs))

    def steps(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Steps[Result]:
        """Parse with pauses."""
        try:
            return (yield from self._walk(*args, **kwargs))
        except (IndexError, struct.error) as error:
            raise ProtocolError("the message ends too early") from error
        except UnicodeDecodeError as error:
            raise ProtocolError("a string of the message is not UTF-8") from error


class Pace:
    """Counts elements to the next pause."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def pauses(self, elements: int) -> bool:
        """Count elements that are done; return whether it is time to pause."""
        self._done += elements
        if self._done < AT_A_TIME:
            return False
        self._done = 0
        return True
