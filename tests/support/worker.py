"""Work in a separate thread during a long run."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable


class Worker:
    """A thread that works from `start` to `finish`. `work` does the work, watches `ended` and waits on it."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        """Report an exception of `work` to `report`, in its thread: the run goes on without the work, and must not look
        complete."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._work_to_the_end, args=(report,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Let the current work end, early if it can."""
        self.ended.set()
        self._thread.join()

    def work(self) -> None:
        """Do all the work, until `ended` is set."""
        raise NotImplementedError

    def _work_to_the_end(self, report: Callable[[str], None]) -> None:
        began_s = time.monotonic()
        try:
            self.work()
        except BaseException as error:  # pytest's own are not subclasses of Exception
            traceback.print_exc()
            report(f"{self._thread.name} broke off after {time.monotonic() - began_s:.0f} s: {error!r}")
