"""How the interpreter is shared between the event loop and threads that work on batches."""

from __future__ import annotations

import sys

_SWITCH_INTERVAL_S = 0.0005
"""Tenth of Python's own: so long the loop may wait for a thread each time that it wakes."""


def favour_the_event_loop() -> None:
    """To be called once where a process of the proxy starts."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
