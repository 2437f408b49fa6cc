"""A process of the load, as it sees its starter: orders come on standard input, findings leave on standard output.

The first line that comes is the process's settings, as JSON; the line `finish` asks for an orderly end. When standard
input closes without it, the starter is gone, and so is this process. Every finding is an object of JSON on a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from threading import Event, Lock, Thread
from typing import Any

FINISH = "finish"
FLUSH_SECONDS = 0.1
"""Time for which rows are gathered before they are sent."""


class Channel:
    """Both directions."""

    def __init__(self) -> None:
        """Reads the settings; blocks until they are there."""
        self.settings: dict[str, Any] = json.loads(sys.stdin.readline())
        self.finishing = Event()
        self._telling = Lock()
        Thread(target=self._obey, daemon=True).start()

    def _obey(self) -> None:
        for line in sys.stdin:
            if line.strip() == FINISH:
                self.finishing.set()
        os._exit(1)

    def send(self, **finding: Any) -> None:
        """Send a finding. From any thread."""
        line = json.dumps(finding, separators=(",", ":")) + "\n"
        with self._telling:
            sys.stdout.write(line)
            sys.stdout.flush()


class Rows:
    """Rows of one thread, sent together every now and then."""

    def __init__(self, channel: Channel, **about: Any) -> None:
        """Send `about` with every lot of rows."""
        self._channel, self._about = channel, about
        self._gathered: dict[str, list[list[Any]]] = {}
        self._sent_at = time.monotonic()

    def add(self, name: str, row: list[Any]) -> None:
        """Keep a row under a name."""
        self._gathered.setdefault(name, []).append(row)

    def flush(self, *, now: bool = False) -> None:
        """Send the gathered rows, if it is time or if `now` is set."""
        if self._gathered and (now or time.monotonic() - self._sent_at >= FLUSH_SECONDS):
            self._channel.send(**self._about, **self._gathered)
            self._gathered = {}
            self._sent_at = time.monotonic()
