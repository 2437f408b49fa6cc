"""Request and answer of the process that runs Spark. They are pickled, so both sides import them from this module."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.pipeline_under_load.books import Read

SOURCES = ("diskless", "kafka")
Found = dict[tuple[str, int], list[Read]]
"""Records by topic and partition, in the order in which they arrived."""


class Asked(NamedTuple):
    """The jobs to run and the topics to read."""

    run: bytes
    config: Path
    bootstrap: str
    rack: str
    topics: tuple[str, ...]
    jobs: tuple[tuple[str, tuple[str, ...]], ...]
    """Names and arguments of jobs to run before the reads."""


class Answer(NamedTuple):
    """Results of the jobs and the reads."""

    jobs: list[tuple[str, int, str]]
    """Names, exit codes and output."""
    read: dict[str, Found]
    """Records by source."""
