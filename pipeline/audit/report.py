"""What an audit tells: findings, a line for each topic, and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.audit.defects import Defect, Suspicion
from pipeline.job import Finding, JobReport

if TYPE_CHECKING:
    from rich.console import Console

MAX_TOLD = 1_000
"""Findings of one kind that are told one by one; the others are counted."""


class AuditReport(JobReport):
    """A report with a table of topics."""

    def add(self, defects: Iterable[Suspicion]) -> None:
        """What was found."""
        told: Counter[Defect] = Counter()
        for defect in defects:
            told[defect.defect] += 1
            if told[defect.defect] <= MAX_TOLD:
                self.findings.append(Finding(defect.defect.value, defect.where, defect.text))
        for kind, count in told.items():
            if count > MAX_TOLD:
                self.findings.append(Finding(kind.value, "", f"and {count - MAX_TOLD:,} more"))

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
