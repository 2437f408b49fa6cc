"""A process of the load, as its starter sees it; the other end is `channel.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from proxy.demo.channel import FINISH
from proxy.demo.errors import StackError

COMPLAINT_LINES = 10


class Worker:
    """Runs `python -m MODULE`, hands it its settings, and hands on what it finds."""

    def __init__(
        self, name: str, module: str, settings: Mapping[str, Any], found: Callable[[dict[str, Any]], None]
    ) -> None:
        """`found` is called from a thread of the worker's, with one finding after the other."""
        self.name = name
        self._found = found
        self._finishing = False
        self._last_lines: deque[str] = deque(maxlen=COMPLAINT_LINES)
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the starter only, which ends all in order
        )
        self._listeners = [Thread(target=target, daemon=True) for target in (self._listen, self._listen_to_complaints)]
        for listener in self._listeners:
            listener.start()
        self._order(json.dumps(settings))

    def _listen_to_complaints(self) -> None:
        assert self._popen.stderr is not None
        self._last_lines.extend(self._popen.stderr)

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if line.endswith("\n"):  # else it was killed in the middle
                self._found(json.loads(line))

    def _order(self, line: str) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line + "\n")
            self._popen.stdin.flush()
        except BrokenPipeError:  # it has ended, which `check` reports
            return

    def finish(self) -> None:
        """Ask for an orderly end."""
        self._finishing = True
        self._order(FINISH)

    @property
    def pid(self) -> int:
        """Return the process ID."""
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Return whether it has ended and all that it found was handed on."""
        return self._popen.poll() is not None and not any(listener.is_alive() for listener in self._listeners)

    def check(self) -> None:
        """Raises StackError where it has ended by itself, or with an error."""
        code = self._popen.poll()
        if code is not None and (code != 0 or not self._finishing):
            raise StackError(
                f"the {self.name} of the load ended (exit code {code}):\n{''.join(self._last_lines).rstrip()}"
            )

    def close(self) -> None:
        """Kill it where it still runs, and let go of everything. Repeatable."""
        self._popen.kill()
        self._popen.wait()
        for listener in self._listeners:
            listener.join()
        for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
