"""One server process: started, watched, paused and ended by its process ID, with its output in a log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from proxy.demo import bound_to_parent
from proxy.demo.errors import StackError

LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 16_384
KILL_TIMEOUT_SECONDS = 10.0

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
"""All servers are started from this one thread, which lives as long as the process: the parent-death signal comes when
the *thread* that forked ends, and callers may be threads of a short-lived pool."""


def bound(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` and has it killed should this process die."""
    return [sys.executable, "-I", "-S", bound_to_parent.__file__, str(os.getpid()), *command]


class Process:
    """A server of the stack. Not running until `start`; can be started again after it ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        stop_timeout_seconds: float = 10.0,
    ) -> None:
        """`command` starts with a path; output is appended to `log`; SIGKILL follows SIGTERM after the timeout."""
        self.name = name
        self.command = list(command)
        self.log = log
        self.stop_timeout_seconds = stop_timeout_seconds
        self.paused = False
        self._environment = None if environment is None else dict(environment)
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. Raises StackError where it runs already or can't be started."""
        if self.running:
            raise StackError(f"{self.name} runs already, as process {self.pid}")
        _spawner.submit(self._spawn).result()

    def _spawn(self) -> None:
        self.paused = False
        with self.log.open("ab") as log:
            # In a session of its own, so that Ctrl-C at the terminal reaches the starter only, which ends all in order.
            self._popen = subprocess.Popen(
                bound(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return the process ID, of the last run where it has ended. Raises StackError before the first start."""
        if self._popen is None:
            raise StackError(f"{self.name} was not started")
        return self._popen.pid

    @property
    def running(self) -> bool:
        """It was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code as subprocess does: -9 for SIGKILL; None if it runs or never did."""
        return None if self._popen is None else self._popen.poll()

    def terminate(self) -> None:
        """SIGTERM, without waiting; a paused process is resumed."""
        if self.running:
            self._signal(signal.SIGTERM)
            self.resume()

    def wait_ended(self) -> int | None:
        """Wait for the end, with SIGKILL after the stop timeout; the exit code, None if it never ran."""
        if self._popen is None:
            return None
        try:
            return self._popen.wait(self.stop_timeout_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int | None:
        """SIGKILL, and wait; the exit code, None if it never ran."""
        if self._popen is None:
            return None
        self._signal(signal.SIGKILL)
        return self._popen.wait(KILL_TIMEOUT_SECONDS)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing. Returns when all its threads stand still."""
        self._signal(signal.SIGSTOP)
        with suppress(ChildProcessError):  # it has ended before
            # On a busy machine its threads run on for tens of milliseconds after the signal was sent.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self._popen is None:
            raise StackError(f"{self.name} was not started")
        self._popen.send_signal(number)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its output."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""
