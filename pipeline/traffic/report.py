"""The report on a terminal: ways, topics and the bill as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.job import Finding, JobReport, counted
from pipeline.traffic.costs import crossings
from pipeline.traffic.summary import Summary
from pipeline.traffic.units import decimal_text, usd_text

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 20
NO_TRAFFIC = "no_traffic"
"""The finding that there is no traffic to report."""


@dataclass
class TrafficReport(JobReport):
    """A report with tables of its own."""

    summary: Summary | None = None

    def print(self, console: Console) -> None:
        """Print the tables, with the largest rows of each, and the findings; without any traffic only the findings."""
        self.print_findings(console)
        if self.summary is None or any(finding.kind == NO_TRAFFIC for finding in self.findings):
            return
        summary = self.summary
        title = f"Records, {summary.span.text()}"
        table = _table(title, "kind", "direction", "client rack", "proxy rack", "serving rack", "bytes>", "crossed>")
        for flow in summary.flows[:_ROWS]:
            *way, size = flow
            _add(table, (*way, decimal_text(size), {0: "", 1: "once"}.get(crossings(flow), "twice")))
        _finish(console, table, len(summary.flows))
        table = _table("Topics", "kind", "direction", "topic", "bytes>", "crossed racks>")
        for key, moved in list(summary.topics.items())[:_ROWS]:
            crossed = decimal_text(moved.crossed_bytes) if moved.crossed_bytes else ""
            _add(table, (*key, decimal_text(moved.bytes), crossed))
        _finish(console, table, len(summary.topics))
        self._print_bill(console, summary)

    def _print_bill(self, console: Console, summary: Summary) -> None:
        table = _table("What it cost", "", "kind", "what", "bytes>", "requests>", "USD>")
        for case, label in (("with_proxies", "with the proxies"), ("without_proxies", "without, by the model")):
            for item in summary.bill.items:
                if item.case == case and (item.bytes or item.requests):
                    requests = f"{item.requests:,}" if item.requests else ""
                    row = label, item.kind, item.what, decimal_text(item.bytes), requests, usd_text(item.usd)
                    _add(table, row)
            _add(table, (label, "", "in all", "", "", usd_text(summary.bill.total_usd(case))))
            table.add_section()
        _add(table, ("saved", "", "", "", "", usd_text(summary.bill.saved_usd())))
        console.print(table)
        model = summary.model
        console.print(
            f"The model: diskless topics as classic ones with replication factor {model.replication_factor} over "
            f"{counted(model.racks, 'rack')}; see docs/pipeline/traffic.md.",
            markup=False,
            highlight=False,
        )
        for name in ("rollups_read", "rollup_bytes_read", "files"):
            if value := self.figures.get(name):
                text = ", ".join(value) if isinstance(value, list) else f"{value:,}"
                console.print(f"{name.replace('_', ' ')}: {text}", markup=False, highlight=False)


def bad_rollup(key: str, text: str) -> Finding:
    """Return an object among the rollups that is none, or is damaged."""
    return Finding(
        "bad_rollup", key, f"{text}; it is left out: look at the object, and delete it where it is of no use"
    )


def _table(title: str, *columns: str) -> Any:
    """Columns that end with `>` are numbers."""
    from rich.table import Table

    table = Table(title=title)
    for column in columns:
        right = column.endswith(">")
        table.add_column(column.rstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def _add(table: Any, cells: tuple[str, ...]) -> None:
    from rich.markup import escape

    table.add_row(*map(escape, cells))


def _finish(console: Console, table: Any, rows: int) -> None:
    if rows > _ROWS:
        table.caption = f"and {rows - _ROWS:,} more: --output writes all"
    console.print(table)
