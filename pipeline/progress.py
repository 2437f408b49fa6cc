"""Progress of a job: bytes, objects, share done and time left, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from pipeline.units import bytes_text, seconds_text

LINES_SECONDS = 5.0
_DRAW_SECONDS = 0.1
_TICK_SECONDS = 0.5
_ERASE_LINE = "\r\x1b[2K"


class Progress:
    """Counts the work done and the work to do; redrawn on a terminal, a line every few seconds elsewhere.

    Entered as a context, once, it is shown whether or not anything is counted; on a terminal nothing of it stays. Any
    thread may count.
    """

    def __init__(
        self,
        doing: str,
        stream: TextIO | None = None,
        *,
        lines_seconds: float = LINES_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin every line with `doing` and write to `stream`, standard error if None; `clock` returns seconds."""
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._seconds_between = _DRAW_SECONDS if self._is_terminal else lines_seconds
        self._clock, self._lock = clock, threading.Lock()
        self.doing = doing
        self.bytes = self.objects = self.tasks = 0
        """Done so far."""
        self.total_bytes = self.total_tasks = 0
        """To be done, as far as it is known; 0 if it is not."""
        self._began = self._told = clock()
        self._shown = False
        self._left = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._began = self._told = self._clock()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left.set()
        self._ticker.join()
        if self._shown and self._is_terminal:
            self._write(_ERASE_LINE)

    def total(self, *, bytes: int = 0, tasks: int = 0) -> None:
        """Add to the work to do: a plan that is made step by step adds to it step by step."""
        with self._lock:
            self.total_bytes += bytes
            self.total_tasks += tasks
            self._show()

    def advance(self, *, bytes: int = 0, objects: int = 0, tasks: int = 0) -> None:
        """Add to the work done."""
        with self._lock:
            self.bytes += bytes
            self.objects += objects
            self.tasks += tasks
            self._show()

    def line(self) -> str:
        """How things stand now, in one line."""
        elapsed = self._clock() - self._began
        parts = [bytes_text(self.bytes) + (f" of {bytes_text(self.total_bytes)}" if self.total_bytes else "")]
        if self.objects:
            parts.append(f"{self.objects:,} objects")
        if self.total_tasks:
            parts.append(f"{self.tasks:,} of {self.total_tasks:,} tasks")
        if share := self.share():
            parts.append(f"{share:.0%}")
            parts.append(f"{seconds_text(elapsed / share - elapsed)} left")
        else:
            parts.append(f"{seconds_text(elapsed)} so far")
        return f"{self.doing}: {', '.join(parts)}"

    def share(self) -> float:
        """Return the share of the known work that is done, from 0 to 1: by bytes if their number is known, else by
        tasks."""
        done, total = (self.bytes, self.total_bytes) if self.total_bytes else (self.tasks, self.total_tasks)
        return min(done / total, 1.0) if total else 0.0

    def _tick(self) -> None:
        """Show regularly that the job is still at work, even if nothing is counted for a while."""
        while not self._left.wait(max(self._seconds_between, _TICK_SECONDS)):
            with self._lock:
                self._show()

    def _show(self) -> None:
        now = self._clock()
        if now - self._told < self._seconds_between:
            return
        self._told, self._shown = now, True
        self._write(f"{_ERASE_LINE}{self.line()}" if self._is_terminal else f"{self.line()}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
