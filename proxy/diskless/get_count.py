"""How many GETs a task causes, whichever cache makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COUNTED: ContextVar[list[None] | None] = ContextVar("counted_gets", default=None)
"""Counter of the task that reads, and of the tasks that it starts: one entry for each GET that it caused."""


def count_gets() -> list[None]:
    """Begin to count what the current task, and tasks that it starts from now on, read from object storage.

    The list grows by one for each GET, by any cache. Blocks that are already being read for others are not counted.
    """
    counted: list[None] = []
    _COUNTED.set(counted)
    return counted


def note_get() -> None:
    """Count a GET for the task that caused it."""
    counted = _COUNTED.get()
    if counted is not None:
        counted.append(None)


@contextmanager
def caused_by_nobody() -> Iterator[None]:
    """Count no GET of tasks that are started meanwhile."""
    counted = _COUNTED.set(None)
    yield
    _COUNTED.reset(counted)
