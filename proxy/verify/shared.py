"""State that the clients of one run share."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from random import Random
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import KafkaError

from proxy.judge.history import HistoryWriter
from proxy.judge.operations import Client, ClientKind, Error, Isolation, Without
from proxy.verify.options import VerifyOptions

SILENT = logging.getLogger("proxy.verify.librdkafka")
"""Logger of all clients. Their errors come to callbacks, and are in the history."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
ERRORS_APART_SECONDS = 1.0
"""Time between two lines of a client about the same error."""


class Shared:
    """The history, the topics, the phase, and how far every view has read. From any thread."""

    def __init__(self, options: VerifyOptions, history: HistoryWriter, run: str, topics: dict[str, int]) -> None:
        """`topics` has the number of partitions by name."""
        self.options, self.history, self.run, self.topics = options, history, run, topics
        self.stopping = Event()
        """Set when producers shall send no more."""
        self.paused = Event()
        """Set while producers shall send nothing."""
        self.closing = Event()
        """Set when consumers shall end."""
        self.positions: dict[str, dict[tuple[str, int], int]] = {}
        """Offset up to which each view has read, by topic and partition."""
        self.assigned: set[str] = set()
        """Views whose consumers ever had a partition to read."""
        self.failures: list[str] = []
        """Errors of our own code in clients' threads."""
        self._clients = 0
        self._lock = Lock()

    @property
    def sending(self) -> bool:
        """Return whether producers shall go on."""
        return not self.stopping.is_set() and self.history.sent < self.options.max_records

    def introduce(
        self, kind: ClientKind, isolation: Isolation = Isolation.UNCOMMITTED, view: str = ""
    ) -> tuple[int, Random]:
        """Write the line of a new client; return its number and its source of random choices."""
        with self._lock:
            number = self._clients
            self._clients += 1
            self.history.write(Client(client=number, kind=kind, isolation=isolation, view=view))
        return number, Random(f"{self.options.seed} {number}")

    def settings(self, client: int, **librdkafka: Any) -> dict[str, Any]:
        """Return librdkafka's settings of a client; `_` in names stands for a dot."""
        return {
            "bootstrap.servers": self.options.bootstrap,
            "client.id": f"verify-{client}",
            "logger": SILENT,
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            "socket.timeout.ms": 15_000,
            "error_cb": ErrorLines(self, client),
            **{name.replace("_", "."): value for name, value in librdkafka.items()},
            **self.options.client_settings,
        }

    def moved(self, view: str, topic: str, partition: int, offset: int) -> None:
        """Note that a view has read up to an offset."""
        positions = self.positions.setdefault(view, {})
        positions[topic, partition] = max(positions.get((topic, partition), 0), offset)

    def leave_out(self, view: str, reason: str) -> None:
        """Note that the cluster does not support a view."""
        with self._lock:
            if self.positions.pop(view, None) is not None:
                self.history.write(Without(view=view, reason=reason))

    def thread(self, name: str, work: Callable[[], None]) -> Thread:
        """Return a thread that was started, whose failure ends the run with an error."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                (*_, last) = traceback.extract_tb(error.__traceback__)
                self.failures.append(f"{name}: {type(error).__name__}: {error} ({last.name}, line {last.lineno})")
                self.stopping.set()

        thread = Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread


class ErrorLines:
    """Writes a client's errors into the history, each at most once a second."""

    def __init__(self, shared: Shared, client: int) -> None:
        self._shared, self._client = shared, client
        self._written: dict[str, float] = {}
        self.fatal = False

    def __call__(self, error: KafkaError) -> None:
        """Take an error of librdkafka."""
        self.fatal = self.fatal or error.fatal()
        name, now = error.name(), time.monotonic()
        if now - self._written.get(name, -ERRORS_APART_SECONDS) >= ERRORS_APART_SECONDS:
            self._written[name] = now
            self._shared.history.write(Error(client=self._client, error=name))
