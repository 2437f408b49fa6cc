"""A Redis-compatible server that the diskless coordinator keeps its state in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event

import redis

from proxy.demo import servers
from proxy.demo.errors import StackError
from proxy.demo.ports import HOST
from proxy.demo.process import Process
from proxy.demo.waiting import wait_until

NAME = "redis"
_NOTHING = '""'


class Valkey:
    """A server whose acknowledged writes are on disk: `appendfsync always`, and no key is ever evicted."""

    title = "a Redis-compatible server"

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        name: str = NAME,
        options: Mapping[str, str] | None = None,
        keeps_settings: bool = False,
    ) -> None:
        """Files are kept in `directory`/data/`name`.

        `options`: more settings. `keeps_settings`: the settings are in a file there, which the server itself may
        rewrite.
        """
        self.address = f"{HOST}:{port}"
        self.url = f"redis://{self.address}/0"
        self.data = directory / "data" / name
        settings = {
            "bind": HOST,
            "port": str(port),
            "dir": str(self.data),
            "save": "",
            "appendonly": "yes",
            # The coordinator answers a commit when the server does, so that answer has to mean "on disk".
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **(options or {}),
        }
        self._file = self.data / "valkey.conf" if keeps_settings else None
        self._lines = [f"{key} {value or _NOTHING}\n" for key, value in settings.items()]
        words = [word for key, value in settings.items() for word in (f"--{key}", value)]
        command = [servers.valkey(), *(words if self._file is None else [str(self._file)])]
        self.process = Process(name, command, directory / "logs" / f"{name}.log")

    @property
    def processes(self) -> list[Process]:
        """Return the server's process."""
        return [self.process]

    def prepare(self) -> None:
        """Make the data directory."""
        self.data.mkdir(parents=True, exist_ok=True)
        if self._file is not None and not self._file.exists():
            self._file.write_text("".join(self._lines))

    def wait_ready(self, timeout_seconds: float, cancelled: Event) -> None:
        """Wait for a PONG. Raises StackError when time is up."""
        wait_until(self._complaint, timeout_seconds, cancelled, self.explain)

    def _complaint(self) -> str:
        if not self.process.running:
            raise StackError(self.explain(f"it ended (exit code {self.process.exit_code})"))
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1.0) as client:
                client.ping()
        except redis.RedisError as error:  # LOADING, too: the append-only file is being read
            return str(error)
        return ""

    def explain(self, complaint: str) -> str:
        """Return the text of an error, with the end of the log."""
        log = self.process.log
        return f"the Redis-compatible server is not ready: {complaint}; see {log}:\n{self.process.log_tail()}"
