"""Run the compaction job from tests, next to their own event loop."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any

from pipeline.compact.job import run
from pipeline.compact.options import CompactOptions
from pipeline.job import JobContext, JobReport
from pipeline.progress import Progress
from proxy.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def compact(
    settings: Settings, spark: SparkSession, *topics: str, dry_run: bool = False, **options: Any
) -> JobReport:
    """Run a compaction; `options` are those of CompactOptions."""
    context = JobContext(settings, spark, topics, dry_run, Progress("compact", io.StringIO()))
    return await asyncio.to_thread(run, context, CompactOptions(**options))
