"""The demo's progress: a table that is drawn again on a terminal, a few lines now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live

from proxy.demo import report
from proxy.demo.tally import Tally

LINES_SECONDS = 5.0


class Progress:
    """Shows how a load gets on, while the context is entered; on a terminal nothing of it stays."""

    def __init__(self, console: Console, seconds: float, *, lines_seconds: float = LINES_SECONDS) -> None:
        """`seconds`: how long the load is to run; `lines_seconds`: between lines where the output is no terminal."""
        self.phase = "under load"
        self._console, self._seconds, self._lines_seconds = console, seconds, lines_seconds
        self._began = self._told = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, tally: Tally, moved: report.Moved) -> None:
        """How things stand now."""
        now = time.monotonic()
        elapsed = now - self._began
        if self._live:
            title = f"{self.phase}: {elapsed:.0f} s of {self._seconds:g} s"
            self._live.update(report.table(title, tally, moved, final=False), refresh=True)
        elif now - self._told >= self._lines_seconds:
            self._told = now
            self._console.print(report.line(elapsed, tally, moved), soft_wrap=True, highlight=False)
