"""The table of the store's servers, for `coordinator nodes` and `top`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from proxy.cli.units import NOTHING, size


def node_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> Table:
    """Return a line for each server, from the rows of `/api/nodes`."""
    style = {"title": title, "title_justify": "left", "title_style": "bold"} if title else {}
    table = Table("node", **style)  # type: ignore[arg-type]
    for heading in ("slots", "shards", "runs/s", "CPU", "memory", "lag"):
        table.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        if row["problem"]:
            table.add_row(Text(row["node"]), _number(row["slots"]), ranges(row["shards"]), Text(row["problem"]))
            continue
        table.add_row(
            Text(row["node"]),
            _number(row["slots"]),
            ranges(row["shards"]),
            _number(row["runs_per_second"]),
            NOTHING if row["cpu_share"] is None else f"{row['cpu_share']:.0%}",
            _memory(row["memory_bytes"], row["memory_limit_bytes"]),
            size(row["lag_bytes"]) if row["replicas"] else "no replica" if row["replicas"] == 0 else NOTHING,
        )
    return table


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers in short: `0-3, 7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found) or NOTHING


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def _memory(used: int | None, limit: int | None) -> str:
    return f"{size(used)} of {size(limit)}" if limit else size(used)
