"""Ctrl-C and its kin as events: the first asks for an orderly end, the second for a quick one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from types import FrameType

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class EndSignals:
    """Set by the first and by the second signal."""

    ended: Event = field(default_factory=Event)
    hurried: Event = field(default_factory=Event)


@contextmanager
def end_signals() -> Iterator[EndSignals]:
    """Catch SIGTERM, SIGINT and SIGHUP meanwhile. In the main thread only."""
    signals = EndSignals()

    def end(number: int, frame: FrameType | None) -> None:
        if signals.ended.is_set():
            signals.hurried.set()
        signals.ended.set()

    before = {number: signal.signal(number, end) for number in END_SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
