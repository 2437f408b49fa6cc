"""The common part of the drivers of jobs that change the index: merge and compact."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pipeline.job import JobContext, JobReport
from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced
from proxy.inspection.stores import Stores

MAX_FAILURES_IN_A_ROW = 5
"""Number of failed tasks in a row after which it is likely that nothing works any more."""

Answer = TypeVar("Answer")


class Driver:
    """One run of a job: its report, and its calls of the stores."""

    def __init__(self, context: JobContext, stores: Stores, runner: asyncio.Runner, report: JobReport) -> None:
        self._context = context
        self._stores = stores
        self._runner = runner
        self._report = report
        self._figures = Counter[str]()

    @contextmanager
    def _told_when_stopped(self, doing: str) -> Iterator[None]:
        """A coordinator that takes no more ends the work within, and is a finding. `doing`: "the merge"."""
        try:
            yield
        except ShardFenced as error:
            self._find("shard_fenced", "", f"{doing} has stopped: {error}")
        except CoordinatorUnavailable as error:
            self._find("coordinator_unavailable", "", f"{doing} has stopped, run it again: {error}")

    def _find(self, kind: str, where: str, text: str) -> None:
        self._report.find(kind, where, text)

    def _call(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(call)
