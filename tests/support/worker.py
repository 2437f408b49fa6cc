"""What goes on beside a long run, in a thread of its own."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable


class Worker:
    """Works from `start` to `finish`; what it does is `work`, which looks at `ended` and waits by it."""

    def __init__(self, name: str, tell: Callable[[str], None]) -> None:
        """`tell` hears of what `work` raises, from its thread: a run goes on without it, and must not seem complete."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._work_to_the_end, args=(tell,), name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """What is under way comes to its end, early where it can."""
        self.ended.set()
        self._thread.join()

    def work(self) -> None:
        """All of it, until `ended` is set."""
        raise NotImplementedError

    def _work_to_the_end(self, tell: Callable[[str], None]) -> None:
        began_s = time.monotonic()
        try:
            self.work()
        except BaseException as error:  # pytest's own are no Exceptions
            traceback.print_exc()
            tell(f"{self._thread.name} broke off after {time.monotonic() - began_s:.0f} s: {error!r}")
