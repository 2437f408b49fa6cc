"""What the process that runs Spark is asked, and answers: pickled, so in a module that both import under its name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.pipeline_under_load.books import Read

SOURCES = ("diskless", "kafka")
Found = dict[tuple[str, int], list[Read]]
"""By topic and partition, in the order in which it came."""


class Asked(NamedTuple):
    """What is to be read."""

    run: bytes
    config: Path
    bootstrap: str
    rack: str
    topics: tuple[str, ...]
    jobs: tuple[tuple[str, tuple[str, ...]], ...]
    """Names and arguments of those that are run before."""


class Answer(NamedTuple):
    """What came of it."""

    jobs: list[tuple[str, int, str]]
    """Names, exit codes and what they said."""
    read: dict[str, Found]
    """By source."""
