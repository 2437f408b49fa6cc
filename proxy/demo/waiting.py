"""Waiting with an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from proxy.demo.errors import StackCancelled, StackError

POLL_SECONDS = 0.05


def wait_until(
    finding: Callable[[], str], timeout_seconds: float, cancelled: Event, explain: Callable[[str], str]
) -> None:
    """Ask `finding` again and again until it finds nothing to complain of (an empty string).

    Raises StackError with what `explain` makes of the last complaint when time is up, and StackCancelled as soon as
    `cancelled` is set. A StackError of `finding` itself passes through: waiting longer would not help.
    """
    deadline = time.monotonic() + timeout_seconds
    while complaint := finding():
        if cancelled.wait(POLL_SECONDS):
            raise StackCancelled("the stack was ended while it started")
        if time.monotonic() > deadline:
            raise StackError(explain(complaint))
