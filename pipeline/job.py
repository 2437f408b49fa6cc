"""The input of every job, and its report."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.progress import Progress
from pipeline.units import bytes_text, seconds_text
from proxy.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

DONE, FAILED = 0, 1
"""Exit codes: done; something was found, or could not be done."""
MAX_FINDINGS = 1_000
"""Maximum number of findings of one kind that `find` lists; the others are counted."""


@dataclass(frozen=True)
class JobContext:
    """The input of a job."""

    settings: Settings
    spark: SparkSession
    topics: tuple[str, ...]
    """Names of diskless topics; all if empty."""
    dry_run: bool
    """Report what would be done, and change nothing."""
    progress: Progress


class Finding(NamedTuple):
    """Something that is wrong, or that could not be done."""

    kind: str
    """A name that scripts can go by: `missing_object`, `shard_fenced` …"""
    where: str
    """Topic and partition, offset, object: as far as they are known."""
    text: str
    """Text for people: the finding, and the next step."""


@dataclass
class JobReport:
    """How a job ended."""

    job: str
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    """The summary: names with their units (`bytes_read`, `objects_written`, `duration_seconds` …), JSON values."""
    dry_run: bool = field(default=False, kw_only=True)
    """Whether nothing was changed, as asked."""

    def __post_init__(self) -> None:
        self._found: Counter[str] = Counter()
        self._more: dict[str, int] = {}
        """Place of the finding that counts the unlisted findings, by kind."""

    def find(self, kind: str, where: str, text: str) -> None:
        """Add a finding; of more than MAX_FINDINGS of its kind, one that counts them."""
        self._found[kind] += 1
        more = self._found[kind] - MAX_FINDINGS
        if more <= 0:
            self.findings.append(Finding(kind, where, text))
        elif more == 1:
            self._more[kind] = len(self.findings)
            self.findings.append(Finding(kind, "", "and 1 more"))
        else:
            self.findings[self._more[kind]] = Finding(kind, "", f"and {more:,} more")

    @property
    def exit_code(self) -> int:
        """Return 0 if all is done, 1 if there are findings."""
        return FAILED if self.findings else DONE

    def as_json(self) -> str:
        """One JSON object."""
        document = {"job": self.job, "dry_run": self.dry_run, "exit_code": self.exit_code}
        findings = [finding._asdict() for finding in self.findings]
        return json.dumps(document | {"findings": findings, "figures": self.figures})

    @property
    def title(self) -> str:
        """Return the job's name, and whether it was a dry run."""
        return f"{self.job} (dry run)" if self.dry_run else self.job

    def print_findings(self, console: Console) -> None:
        """Print the findings: a table on a terminal, else a line each; nothing if there are none."""
        from rich.table import Table

        if not self.findings:
            return
        title = f"{self.title}: {counted(len(self.findings), 'finding')}"
        if not console.is_terminal:
            lines = [" ".join(filter(None, (f"{kind}:", where, text))) for kind, where, text in self.findings]
            console.print("\n".join([title, *lines]), markup=False, highlight=False, soft_wrap=True)
            return
        table = Table("finding", "where", "what", title=title)
        for finding in self.findings:
            table.add_row(*(_plain(cell) for cell in finding))
        console.print(table)

    def print(self, console: Console) -> None:
        """Print findings and figures as tables; findings as lines if there is no terminal, and so no width."""
        from rich.table import Table

        self.print_findings(console)
        table = Table("figure", "value", title=self.title)
        table.columns[1].justify = "right"
        for name, value in self.figures.items():
            if not isinstance(value, (dict, list)):
                table.add_row(_plain(name.replace("_", " ")), _plain(_told(name, value)))
        console.print(table)


def counted(number: int, of: str) -> str:
    """`1 finding`, `1,000 findings`."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _told(name: str, value: Any) -> str:
    """Return a figure for people, by the unit in its name."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    words = name.split("_")
    if "bytes" in words and "per" not in words:
        return f"{value:,} ({bytes_text(value)})" if value >= 1024 else f"{value:,}"
    if words[-1] == "seconds":
        return seconds_text(value) if value >= 60 else f"{value:.1f} s"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
