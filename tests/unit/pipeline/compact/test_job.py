"""The driver of a compaction, before it starts Spark."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.compact import job
from pipeline.compact.options import CompactOptions
from pipeline.errors import PipelineError
from pipeline.job import JobContext
from pipeline.progress import Progress
from proxy.config import Garbage
from proxy.inspection.stores import Stores


def test_nothing_is_written_if_orphans_of_any_age_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def opened(settings: Any) -> AsyncIterator[Stores]:
        yield Stores(settings, (), None, None)  # type: ignore[arg-type]

    monkeypatch.setattr("pipeline.stores.opened", opened)
    settings = SimpleNamespace(garbage=Garbage(orphan_age_ms=0))
    context = JobContext(settings, None, (), False, Progress("compact", io.StringIO()))  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"garbage\.orphan_age_ms is 0"):
        job.run(context, CompactOptions())
