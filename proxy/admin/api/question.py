"""The questions that the admin port sends to each process that serves clients, and the form of the answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

MAX_LIMIT = 1_000
"""Maximum number of rows in one answer."""
DEFAULT_LIMIT = 100
LONGEST_CONTAINS = 256
"""Maximum number of characters of a filter."""


class Resource(Enum):
    """The subject of a question."""

    FIGURES = auto()
    FLEET = auto()
    NODES = auto()
    TOPICS = auto()
    SEGMENTS = auto()
    CONNECTIONS = auto()
    ERRORS = auto()


@dataclass(frozen=True, slots=True)
class Question:
    """A question; each process gets the same one."""

    resource: Resource
    contains: str = ""
    """Text that one of a row's names must contain, in any case; empty for all rows."""
    limit: int = DEFAULT_LIMIT
    """Maximum number of rows."""


@dataclass(frozen=True, slots=True)
class ProcessAnswer:
    """The answer of one process. `worker` is None if the proxy has a single process."""

    worker: int | None
    value: Any


def shown(text: str | None, longest: int = 256) -> str | None:
    """Return a name from outside in a form that is safe to show: unprintable characters escaped, a long name cut.

    So no answer contains control characters, turns the writing direction, or cannot be encoded.
    """
    if text is None:
        return None
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
