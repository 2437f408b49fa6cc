"""`diskless-proxy fleet`: which proxies live, as the coordinator has it, and how each of them does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from proxy.cli.units import NOTHING, duration
from proxy.console.admin_port import AdminPort, AdminPortError
from proxy.console.console import FAILED, AsJson, ConfigFile, output, run_command

if TYPE_CHECKING:
    from proxy.coordinator.interface_fleet import SeenProxy

_TIMEOUT_S = 2.0
_AT_A_TIME = 16


class _Member(NamedTuple):
    """One proxy: its processes have one name before the last `#`."""

    name: str
    processes: tuple[SeenProxy, ...]


def fleet(
    config: ConfigFile,
    as_json: AsJson = False,
) -> None:
    """List the proxies of the fleet, by what the coordinator has of them; no proxy has to run.

    Each one's admin port is asked how it does, where it is reached from here. Exit code 1 where no proxy lives.

    Example: `diskless-proxy fleet --config proxy.yaml`.
    """
    members, lease_ms = run_command(lambda: _members(config))
    with ThreadPoolExecutor(_AT_A_TIME) as asking:
        rows = list(asking.map(lambda member: _row(member, lease_ms), members))
    if as_json:
        typer.echo(json.dumps({"proxies": rows}))
    else:
        _print(rows)
    if not rows:
        raise typer.Exit(FAILED)


async def _members(config: Path) -> tuple[list[_Member], int]:
    from proxy.config import load_settings
    from proxy.coordinator.connect import connect
    from proxy.coordinator.fleet_store import RedisFleetStore

    settings = load_settings(config)
    client = await connect(settings.redis)
    try:
        seen = await RedisFleetStore(client).look()
    finally:
        await client.aclose()
    return by_proxy(seen), settings.fleet.lease_ms


def by_proxy(seen: Iterable[SeenProxy]) -> list[_Member]:
    """Processes that have clients by their proxy, sorted by rack and name."""
    by_name: dict[str, list[SeenProxy]] = {}
    for one in seen:
        if not one.record.listeners:
            continue
        by_name.setdefault(one.record.proxy_id.rpartition("#")[0], []).append(one)
    members = [_Member(name, tuple(processes)) for name, processes in by_name.items()]
    return sorted(members, key=lambda one: (one.processes[0].record.rack, one.name))


def _row(member: _Member, lease_ms: int) -> dict[str, Any]:
    from proxy.admin.api.fleet import age_ms, proxy_row

    records = [one.record for one in member.processes]
    oldest_ms = max(age_ms(lease_ms, one.lease_left_ms) for one in member.processes)
    row = proxy_row(records[0], oldest_ms, this=False)
    del row["this"]
    serving = [record.serving for record in records]
    return row | {
        "proxy": member.name,
        "processes": len(records),
        "serving": all(serving),
        "registry_version": min(record.registry_version for record in records),
        "admin": records[0].admin or None,
        **_asked(member.name, records[0].admin),
    }


def _asked(name: str, admin: str) -> dict[str, Any]:
    """How the proxy does, as its admin port says; a loopback address may be another machine's."""
    if not admin:
        return {"state": None, "reason": "its admin port is not known"}
    try:
        answer = AdminPort(f"http://{admin}", _TIMEOUT_S).get("overview")
    except AdminPortError as error:
        return {"state": None, "reason": f"not reached from here: {error}"}
    if answer.get("proxy") != name:
        return {"state": None, "reason": f"{admin} is another proxy's from here; ask on its own machine"}
    return {"state": answer.get("state"), "reason": answer.get("reason") or answer.get("remark")}


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = output()
    if not rows:
        typer.echo("No proxy lives: none has said so within fleet.lease_ms. Is redis.url the fleet's?")
        return
    table = Table("rack", "proxy", "clients come to", "serving", "state", "version", "heartbeat", "registry")
    notes = []
    for row in rows:
        name = row["proxy"] if row["processes"] == 1 else f"{row['proxy']} ({row['processes']} processes)"
        cells = (row["rack"], name, row["address"], "yes" if row["serving"] else "no")
        state = (row["state"] or NOTHING).replace("_", " ")
        heartbeat = f"{duration(row['age_ms'])} ago"
        texts = (*cells, state, row["version"] or NOTHING, heartbeat, str(row["registry_version"]))
        table.add_row(*(Text(one) for one in texts))
        if row["reason"]:
            notes.append(f"{row['proxy']}: {row['reason']}")
    console.print(table)
    for note in notes:
        typer.echo(note)
