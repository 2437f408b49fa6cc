"""`diskless-proxy connections`: who is connected, whose records cross racks, and what to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.cli.units import NOTHING, duration, size
from proxy.console.admin_port import AdminConfig, AdminPort, AdminUrl, admin_url
from proxy.console.console import AsJson, output, run_with_admin_port

if TYPE_CHECKING:
    from rich.table import Table

_MAX_LIMIT = 1_000


def connections(
    admin: AdminUrl = None,
    config: AdminConfig = None,
    contains: Annotated[
        str,
        typer.Option(
            help="Only connections with this text in address, client ID, software, rack, principal or listener."
        ),
    ] = "",
    crossing: Annotated[
        bool, typer.Option("--crossing", help="Only connections whose records have crossed racks.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=_MAX_LIMIT, help="Maximum number of rows.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the clients that are connected to a proxy, those whose records cross racks first.

    Bytes are counted since a connection was opened; "crossed" are bytes of records, for each time that they cross.

    Examples: `diskless-proxy connections --crossing`, `diskless-proxy connections --contains orders --json`.
    """
    port = run_with_admin_port(lambda: AdminPort(admin_url(admin, config)))
    answer = run_with_admin_port(lambda: port.get("connections", contains=contains, limit=limit))
    rows, total, table = run_with_admin_port(lambda: _rows(port, answer, crossing=crossing))
    if as_json:
        typer.echo(json.dumps({"total": total, "connections": rows}))
        return
    output().print(table)
    shown = f"{len(rows):,} of {total:,} connections"
    typer.echo(f"{shown}; --contains TEXT narrows them down" if total > len(rows) and not crossing else shown)
    for line in remedies(rows, run_with_admin_port(lambda: _rack(port))):
        typer.echo(line)


def _rows(port: AdminPort, answer: dict[str, Any], *, crossing: bool) -> tuple[list[dict[str, Any]], int, Table]:
    with port.as_expected():
        rows = [row for row in answer["connections"] if row["crossed_bytes"] or not crossing]
        return rows, int(answer["total"]), connections_table(rows)


def _rack(port: AdminPort) -> str:
    with port.as_expected():
        return str(port.get("overview")["rack"])


def connections_table(rows: list[dict[str, Any]]) -> Table:
    """One line for each."""
    from rich.table import Table
    from rich.text import Text

    table = Table("client", "client ID", "software", "rack", "by", "listener", "principal")
    numbers = ("requests", "received", "sent", "crossed", "since")
    for name in numbers:
        table.add_column(name, justify="right")
    now_ms = _now_ms()
    for row in rows:
        names = (row["client"], row["client_id"], row["software"], row["rack"])
        origins = (row["rack_from"], row["listener"], row["principal"])
        crossed = size(row["crossed_bytes"]) if row["crossed_bytes"] else "0"
        table.add_row(
            *(Text(name or NOTHING) for name in (*names, *origins)),
            f"{row['requests']:,}",
            size(row["received_bytes"]),
            size(row["sent_bytes"]),
            Text(crossed, style="yellow" if row["crossed_bytes"] else ""),
            duration(now_ms - row["opened_ms"]),
        )
    return table


def remedies(rows: list[dict[str, Any]], proxy_rack: str) -> list[str]:
    """Return remedies for crossings: for clients of other racks than the proxy's, and for those of its own."""
    crossing = [row for row in rows if row["crossed_bytes"]]
    foreign = sorted({row["rack"] for row in crossing if row["rack"] != proxy_rack})
    lines = []
    if foreign:
        lines.append(
            f"Clients of {', '.join(foreign)} come to a proxy of {proxy_rack}: let their bootstrap.servers name the "
            "proxies of their own rack, or fix the rack if it is not theirs (docs/racks.md)."
        )
    if any(row["rack"] == proxy_rack for row in crossing):
        lines.append(
            f"Clients of {proxy_rack} whose records cross produce to leaders in other racks, or read what no replica "
            f"in {proxy_rack} has: make such topics diskless, or move leaders and replicas (docs/racks.md)."
        )
    return lines


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
