"""One picture of `diskless-proxy top`, from the JSON of the admin port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.cli.node_table import node_table
from proxy.cli.units import NOTHING, dollars, duration, milliseconds, rate, size

_BARS = "▁▂▃▄▅▆▇█"
_PLOTTED = 30
_STATE_STYLE = {"ready": "bold green", "draining": "bold yellow", "not_ready": "bold red"}


def frame(figures: dict[str, Any], url: str, failure: str = "") -> RenderableType:
    """All of it; `failure` says why nothing newer is known."""
    overview, samples = figures["overview"], figures["history"]
    parts: list[RenderableType] = [_head(overview, url)]
    parts += [Text(f"STALE: {failure}", style="bold red")] if failure else []
    parts += [Text(overview["reason"], style="red")] if overview["reason"] else []
    parts += [Text(overview["remark"], style="yellow")] if overview["remark"] else []
    parts += [_plots(samples), _money(overview, samples), _flows(overview["flows"])]
    crossing = [row for row in figures["connections"] if row["crossed_bytes"]]
    if crossing:
        parts.append(_crossing(crossing))
    if figures["nodes"]:
        parts.append(node_table(figures["nodes"], "Servers of the store"))
    if figures["errors"]:
        parts.append(_errors(figures["errors"], overview["now_ms"]))
    return Group(*parts)


def _head(overview: dict[str, Any], url: str) -> Text:
    state = overview["state"]
    head = Text.assemble((overview["proxy"], "bold"), f" in {overview['rack']}  ")
    head.append(state.replace("_", " "), style=_STATE_STYLE.get(state, ""))
    up_ms = overview["now_ms"] - overview["started_ms"] if overview["started_ms"] else None
    workers = f", {overview['workers']} workers" if overview["workers"] > 1 else ""
    head.append(f"  up {duration(up_ms)}, version {overview['version']}{workers}, {url}")
    return head


def _plots(samples: Sequence[dict[str, Any]]) -> Table:
    table = Table("", box=None, pad_edge=False)
    table.add_column("now", justify="right", min_width=11)
    table.add_column("last minute")

    def row(label: str, name: str, shown: Any) -> None:
        values = [sample[name] for sample in samples[-_PLOTTED:]]
        table.add_row(label, shown(values[-1]) if values else NOTHING, sparkline(values))

    row("produce", "produce_bytes_per_second", rate)
    row("fetch", "fetch_bytes_per_second", rate)
    row("requests", "requests_per_second", lambda value: f"{value:,.0f}/s")
    row("produce p99", "produce_p99_ms", milliseconds)
    row("fetch p99", "fetch_p99_ms", milliseconds)
    row("upload p99", "upload_p99_ms", milliseconds)
    row("commit p99", "commit_p99_ms", milliseconds)
    row("event loop lag p99", "loop_lag_p99_ms", milliseconds)
    row("errors", "errors_per_second", lambda value: f"{value:,.1f}/s")
    row("connections", "connections", lambda value: f"{value:,}")
    row("crossing racks", "cross_rack_bytes_per_second", rate)
    return table


def sparkline(values: Sequence[float | None]) -> str:
    """Return a bar for each value, as high as its part of the highest; a blank where there is none."""
    highest = max((value for value in values if value is not None), default=0.0)
    if highest <= 0:
        return "".join(" " if value is None else _BARS[0] for value in values)
    bars = len(_BARS) - 1
    return "".join(" " if value is None else _BARS[round(max(0.0, value) / highest * bars)] for value in values)


def _money(overview: dict[str, Any], samples: Sequence[dict[str, Any]]) -> Text:
    last = samples[-1] if samples else {}
    spent = dollars(sum(flow["cost_usd"] for flow in overview["flows"]))
    storage = dollars(sum(overview["storage_cost_usd"].values()))
    saved = dollars(sum(overview["savings"].values()))
    return Text(
        f"since start: {spent} between racks, {storage} for requests to storage, {saved} saved;  "
        f"now: {dollars(last.get('cross_rack_usd_per_hour'))} an hour between racks, "
        f"{dollars(last.get('saved_usd_per_hour'))} an hour saved"
    )


def _flows(flows: Sequence[dict[str, Any]]) -> Table:
    table = Table("records", "client's rack", "", "served by", title="Flows", title_justify="left", title_style="bold")
    for name in ("now", "in all", "an hour", "cost so far"):
        table.add_column(name, justify="right")
    for flow in flows[:10]:
        crosses = flow["crosses"]
        arrow = "→" if flow["direction"] == "produce" else "←"
        table.add_row(
            f"{flow['kind']} {flow['direction']}",
            Text(flow["client_rack"]),
            f"{arrow} crosses" if crosses else arrow,
            Text(flow["serving_rack"] or "unknown"),
            rate(flow["bytes_per_second"]),
            size(flow["bytes"]),
            dollars(flow["usd_per_hour"]) if crosses else "",
            dollars(flow["cost_usd"]) if crosses else "",
            style="yellow" if crosses else None,
        )
    return table


def _crossing(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("client", "client ID", "rack", "by", title="Who crosses", title_justify="left", title_style="bold")
    table.add_column("crossed", justify="right")
    for row in rows:
        names = (row["client"], row["client_id"], row["rack"], row["rack_from"])
        table.add_row(*(Text(name or NOTHING, overflow="ellipsis") for name in names), size(row["crossed_bytes"]))
    return table


def _errors(errors: Sequence[dict[str, Any]], now_ms: int) -> Table:
    table = Table("ago", "times", "what", "remedy", title="Recent errors", title_justify="left", title_style="bold")
    for error in errors:
        what = f"{error['event']}: {error['text']}" if error["text"] else error["event"]
        remedy = Text(error["remedy"] or NOTHING)
        table.add_row(duration(now_ms - error["time_ms"]), f"{error['count']:,}", Text(what), remedy)
    return table
