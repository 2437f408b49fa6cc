"""A process of the load, as its starter sees it; the other end is `channel.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from proxy.demo.channel import FINISH
from proxy.demo.errors import StackError

COMPLAINT_LINES = 10
COMPLAINT_BYTES = 4096


class Worker:
    """Runs `python -m MODULE`, hands it its settings, and hands on what it finds."""

    def __init__(
        self, name: str, module: str, settings: Mapping[str, Any], found: Callable[[dict[str, Any]], None]
    ) -> None:
        """`found` is called from a thread of the worker's, with one finding after the other."""
        self.name = name
        self._found = found
        self._finishing = False
        self._stderr = tempfile.TemporaryFile()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the starter only, which ends all in order
        )
        self._order(json.dumps(settings))
        self._listener = Thread(target=self._listen, name=name, daemon=True)
        self._listener.start()

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
        except BrokenPipeError:  # it has ended, which `check` tells of
            return

    def finish(self) -> None:
        """Ask for an orderly end."""
        self._finishing = True
        self._order(FINISH)

    @property
    def ended(self) -> bool:
        """Whether it has ended and all that it found was handed on."""
        return self._popen.poll() is not None and not self._listener.is_alive()

    def check(self) -> None:
        """Raises StackError where it has ended by itself, or with an error."""
        code = self._popen.poll()
        if code is not None and (code != 0 or not self._finishing):
            raise StackError(f"the {self.name} of the load ended (exit code {code}):\n{self._complaint()}")

    def _complaint(self) -> str:
        self._stderr.seek(0, 2)
        self._stderr.seek(max(0, self._stderr.tell() - COMPLAINT_BYTES))
        return "\n".join(self._stderr.read().decode(errors="replace").splitlines()[-COMPLAINT_LINES:])

    def close(self) -> None:
        """Kill it where it still runs, and let go of everything. Repeatable."""
        self._popen.kill()
        self._popen.wait()
        self._listener.join()
        for stream in (self._popen.stdin, self._popen.stdout, self._stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
