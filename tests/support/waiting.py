"""Wait, with a time limit, for states that nothing announces."""

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 240.0
POLL_SECONDS = 0.05

Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value], what: str, seconds: float = WAIT_SECONDS) -> Value:
    """Wait until the condition holds and return its value. Fails with `what` when the time is up."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)
    return value
