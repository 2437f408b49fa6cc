"""SIGTERM and SIGINT end a job: between two tasks if possible, otherwise, or at the second signal, at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

END_SIGNALS = (signal.SIGTERM, signal.SIGINT)

ending = Event()
"""Set by the first signal: no more tasks are begun."""
_received: list[int] = []
"""Signals since `end_signals` was entered."""
at_once: list[Callable[[], None]] = []
"""Called before Ended is raised, so that whatever the main thread waits for comes to its end."""
_in_tasks: list[None] = []
"""One entry for each `between_tasks` that is entered."""


class Ended(SystemExit):
    """The process was asked to end; its exit code is the shell's, 128 + the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@contextmanager
def end_signals() -> Iterator[None]:
    """Meanwhile a signal raises Ended in the main thread, or lets `run_tasks` do so. In the main thread only."""
    raised: list[Ended] = []

    def end(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        if _in_tasks and not ending.is_set():
            ending.set()
            print("ending when the tasks that run are done; once more to end at once", file=sys.stderr, flush=True)
            return
        ending.set()
        raised.append(Ended(number))
        for one in END_SIGNALS:  # what cleans up now has bounds of its own, and must not be left half done
            signal.signal(one, signal.SIG_IGN)
        print(f"ended by {signal.Signals(number).name}; what is done is kept", file=sys.stderr, flush=True)
        for let_go in at_once:
            let_go()
        raise raised[0]

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        yield
        raise_if_ending()
    except Exception:
        if raised:  # what is interrupted in the middle of a call may say anything on its way out
            raise raised[0] from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending.clear()
        _received.clear()


def raise_if_ending() -> None:
    """Raise Ended if a signal came that was only noted."""
    if _received:
        raise Ended(_received[0])


@contextmanager
def between_tasks() -> Iterator[None]:
    """Let the first signal only set `ending`, which the code in this context checks."""
    _in_tasks.append(None)
    try:
        yield
    finally:
        _in_tasks.pop()
