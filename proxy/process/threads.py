"""How the interpreter is shared between the event loop and threads that work on batches."""

from __future__ import annotations

import sys

_SWITCH_INTERVAL_S = 0.0005
"""A tenth of Python's own interval. The loop may have to wait this long for a thread each time that it wakes."""


def favour_the_event_loop() -> None:
    """Set the switch interval; call it once at the start of a process of the proxy."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
