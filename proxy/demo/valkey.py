"""The Redis-compatible server that the diskless coordinator keeps its state in."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import redis

from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

NAME = "redis"


class Valkey:
    """A server whose acknowledged writes are on disk: `appendfsync always`, and no key is ever evicted."""

    def __init__(self, directory: Path, port: int) -> None:
        """Files are kept in `directory`/data/redis."""
        self.address = f"{HOST}:{port}"
        self.url = f"redis://{self.address}/0"
        self._data = directory / "data" / NAME
        settings = {
            "bind": HOST,
            "port": str(port),
            "dir": str(self._data),
            "save": "",
            "appendonly": "yes",
            # The coordinator answers a commit when the server does, so that answer has to mean "on disk".
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
        }
        command = [servers.valkey(), *(word for key, value in settings.items() for word in (f"--{key}", value))]
        self.process = Process(NAME, command, directory / "logs" / f"{NAME}.log")

    def prepare(self) -> None:
        """Make the data directory."""
        self._data.mkdir(parents=True, exist_ok=True)

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait for a PONG. Raises StackError when time is up."""
        wait_until(self._complaint, timeout_seconds, cancelled, self._explain)

    def _complaint(self) -> str:
        if not self.process.running:
            raise StackError(self._explain(f"it ended (exit code {self.process.exit_code})"))
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1.0) as client:
                client.ping()
        except redis.RedisError as error:  # LOADING, too: the append-only file is being read
            return str(error)
        return ""

    def _explain(self, complaint: str) -> str:
        log = self.process.log
        return f"the Redis-compatible server is not ready: {complaint}; see {log}:\n{self.process.log_tail()}"
