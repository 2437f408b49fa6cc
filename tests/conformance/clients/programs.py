"""Clients that are programs: their output is read while they run, and they end at SIGTERM."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from tests.conformance.model import TIMEOUT_SECONDS

QUIET_SECONDS = 0.05
OUT, ERRORS = "out", "errors"
Line = tuple[str, str]


class Program:
    """A program that runs until the context ends."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self._lines: queue.Queue[Line | None] = queue.Queue()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(OUT, self._process.stdout)),
            threading.Thread(target=self._read, args=(ERRORS, self._process.stderr)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.put((name, line.decode(errors="surrogateescape").rstrip("\n")))
        self._lines.put(None)

    def lines(self) -> Iterator[Line | None]:
        """Yield lines as they arrive, until the program ends; None if there was none for a moment."""
        ended = 0
        while ended < len(self._readers):
            try:
                line = self._lines.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                yield None
                continue
            if line is None:
                ended += 1
            else:
                yield line

    def stop(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self._process.terminate()
        try:
            code = self._process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for reader in self._readers:
            reader.join()
        return code


def run(
    command: Sequence[str], stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end."""
    return subprocess.run(
        command, input=stdin, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS * 2, check=False
    )
