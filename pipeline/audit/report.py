"""The report of an audit: findings, a line for each topic, and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.audit.defects import Defect, Suspicion
from pipeline.job import Finding, JobReport

if TYPE_CHECKING:
    from rich.console import Console

MAX_LISTED = 1_000
"""Maximum number of findings of one kind that are listed; the others are counted."""


class AuditReport(JobReport):
    """A report with a table of topics."""

    def add(self, defects: Iterable[Suspicion]) -> None:
        """Add findings."""
        counts: Counter[Defect] = Counter()
        for defect in defects:
            counts[defect.defect] += 1
            if counts[defect.defect] <= MAX_LISTED:
                self.findings.append(Finding(defect.defect.value, defect.where, defect.text))
        for kind, count in counts.items():
            if count > MAX_LISTED:
                self.findings.append(Finding(kind.value, "", f"and {count - MAX_LISTED:,} more"))

    def print(self, console: Console) -> None:
        """Findings, topics and figures as tables."""
        from rich.markup import escape
        from rich.table import Table

        topics = self.figures.get("topics", {})
        table = Table("topic", title="topics")
        for name in next(iter(topics.values()), {}):
            table.add_column(name, justify="right")
        for name, figures in topics.items():
            table.add_row(escape(name), *(f"{figure:,}" for figure in figures.values()))
        if topics:
            console.print(table)
        super().print(console)
