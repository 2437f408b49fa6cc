"""`diskless-proxy top`: what a proxy does now, redrawn every few seconds."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.console.admin_port import AdminConfig, AdminPort, AdminPortError, AdminUrl, admin_url
from proxy.console.console import output, run_with_admin_port

if TYPE_CHECKING:
    from rich.console import RenderableType

_ROWS = 5


def top(
    admin: AdminUrl = None,
    config: AdminConfig = None,
    interval: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and end. The default without a terminal.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document per line for each update, to standard output.")
    ] = False,
) -> None:
    """Watch a proxy: throughput, latencies, what flows between racks and its cost, who crosses, the store, errors.

    q or Ctrl-C ends it.

    Examples: `diskless-proxy top`, `diskless-proxy top --admin http://10.0.1.7:19080`, `diskless-proxy top --once`.
    """
    port = run_with_admin_port(lambda: AdminPort(admin_url(admin, config)))
    first = run_with_admin_port(lambda: look(port))
    with suppress(KeyboardInterrupt, BrokenPipeError):
        if as_json:
            _lines(port, first, interval, once=once)
        elif once or not sys.stdout.isatty():
            output().print(run_with_admin_port(lambda: drawn(port, first)))
        else:
            _live(port, first, interval)


def look(port: AdminPort) -> dict[str, Any]:
    """Return the figures to draw, or to print as JSON. Raises AdminPortError."""
    with port.as_expected():
        history = port.get("history")["samples"]
        return {
            "overview": port.get("overview"),
            "history": history[-60:],
            "connections": port.get("connections", limit=_ROWS)["connections"],
            "errors": port.get("errors", limit=_ROWS)["errors"],
            "nodes": port.get("nodes")["nodes"],
        }


def drawn(port: AdminPort, figures: dict[str, Any], failure: str = "") -> RenderableType:
    """Return the picture of it. Raises AdminPortError."""
    from proxy.cli.top_frame import frame

    with port.as_expected():
        return frame(figures, port.url, failure)


def _lines(port: AdminPort, first: dict[str, Any], interval: float, *, once: bool) -> None:
    from proxy.cli.keys import quit_pressed

    figures = first
    while True:
        print(json.dumps(figures | {"history": figures["history"][-1:]}), flush=True)
        if once or quit_pressed(interval):
            return
        figures = run_with_admin_port(lambda: look(port))


def _live(port: AdminPort, first: dict[str, Any], interval: float) -> None:
    from rich.live import Live

    from proxy.cli.keys import quit_pressed, single_keys

    shown, figures = run_with_admin_port(lambda: drawn(port, first)), first
    with single_keys(), Live(console=output(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(shown, refresh=True)
            if quit_pressed(interval):
                return
            try:
                newer = look(port)
                shown, figures = drawn(port, newer), newer
            except AdminPortError as error:
                shown = drawn(port, figures, str(error))
