"""What is asked of each process that serves clients, and how it names itself in its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

MAX_LIMIT = 1_000
"""Rows in one answer."""
DEFAULT_LIMIT = 100
LONGEST_CONTAINS = 256
"""Characters of a filter."""


class Resource(Enum):
    """What is asked for."""

    FIGURES = auto()
    FLEET = auto()
    TOPICS = auto()
    SEGMENTS = auto()
    CONNECTIONS = auto()
    ERRORS = auto()


@dataclass(frozen=True, slots=True)
class Question:
    """Asked of each process in the same words."""

    resource: Resource
    contains: str = ""
    """Only rows with this in one of their names, in capitals or not; all where empty."""
    limit: int = DEFAULT_LIMIT
    """Rows at most."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one process said; None for `worker` where there is only one."""

    worker: int | None
    value: Any


def shown(text: str | None, longest: int = 256) -> str | None:
    """A name that somebody else has chosen, as it may be shown: what can't be printed is escaped, what is long is cut.

    So no answer holds control characters, turns the writing direction, or can't be encoded.
    """
    if text is None:
        return None
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)
