"""The audit as a job on Spark."""

from __future__ import annotations

import asyncio

from pipeline.audit.audit import Audit, AuditOptions
from pipeline.audit.reads import read
from pipeline.audit.report import AuditReport
from pipeline.audit.spill import Spill
from pipeline.job import JobContext
from pipeline.tasks import run_tasks


def run(context: JobContext, options: AuditOptions) -> AuditReport:
    """Everything, or with topics named in the context only those (use and orphans are not looked at then).

    Raises CoordinatorUnavailable and StorageError if there is nothing to look at, and InspectionError for a topic
    that is not diskless.
    """
    audit = Audit(context.settings, options, context.progress, topics=context.topics, dry_run=context.dry_run)
    with Spill() as spill:
        asyncio.run(audit.gather(spill))
        for task, answer in run_tasks(context.spark, read, audit.tasks(spill)):
            audit.take(task, answer)
    return audit.report(asyncio.run(audit.decide()))
