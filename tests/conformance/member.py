"""A consumer that reads on while a scenario does other things."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Self

from tests.conformance.model import RESTART_SECONDS, TIMEOUT_SECONDS, Assigned, Client, Consuming, Received
from tests.support.waiting import wait_for


class Member:
    """Reads in its own thread. When the context ends, it has committed and left."""

    def __init__(self, client: Client, bootstrap: str, what: Consuming) -> None:
        self._client, self._bootstrap, self._what = client, bootstrap, what
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._error: BaseException | None = None
        self.received: list[Received] = []
        self.assigned: frozenset[tuple[str, int]] = frozenset()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "it does not leave"
        self.check()

    def check(self) -> None:
        """Raise the error that the client surfaced."""
        if self._error:
            raise self._error

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition holds."""

        def holds() -> object:
            self.check()
            return condition()

        wait_for(holds, what)

    def _follow(self) -> None:
        try:
            while not self._stop.is_set():
                self._read()
        except BaseException as error:
            self._error = error

    def _read(self) -> None:
        """Read until asked to stop, or until it had no partitions for too long (RESTART_SECONDS)."""
        began_s = time.monotonic()
        for_nothing = bool(self._what.group)
        events: Any
        with closing(self._client.consume(self._bootstrap, self._what)) as events:  # type: ignore[type-var]
            for event in events:
                if isinstance(event, Received):
                    self.received.append(event)
                elif isinstance(event, Assigned):
                    self.assigned = event.partitions
                for_nothing = for_nothing and not isinstance(event, Received) and not self.assigned
                if self._stop.is_set() or (for_nothing and time.monotonic() - began_s > RESTART_SECONDS):
                    return
