"""The event loop gets the interpreter back from threads sooner than with Python's default."""

from __future__ import annotations

import sys

from proxy.process.threads import favour_the_event_loop


def test_the_loop_waits_less_for_a_thread_than_by_default() -> None:
    before_s = sys.getswitchinterval()
    try:
        favour_the_event_loop()
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before_s)
