"""`diskless-proxy check`: whether a start with this settings file would work, and what has to be fixed if not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.console.config_file import config_option
from proxy.console.console import run_command

if TYPE_CHECKING:
    from proxy.check.check import Progress
    from proxy.check.findings import Finding, Kind, Level


def check(
    config: Annotated[Path, config_option("The settings file of the proxy that is to start.")],
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document to standard output.")] = False,
) -> None:
    """Try everything that a start needs, and name the remedy of each failure. No proxy has to run.

    Brokers, rights, Redis, object storage, ports, certificates, clocks, advertised addresses. Nothing is left behind.
    Exit code 1 where anything has to be fixed.
    """
    from proxy.check.check import check_file
    from proxy.check.findings import exit_code

    with _progress() as progress:
        findings = run_command(lambda: check_file(config, progress))
    code = exit_code(findings, strict=strict)
    if as_json:
        typer.echo(json.dumps({"ok": code == 0, "findings": [asdict(finding) for finding in findings]}))
    else:
        _print(findings)
    raise typer.Exit(code)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show on standard error what is still being checked, if that is a terminal."""
    from rich.console import Console

    from proxy.check.findings import Kind

    console = Console(stderr=True)
    left = list(Kind)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("checking") as status:

        def looked_at(kind: Kind) -> None:
            if kind in left:
                left.remove(kind)
            status.update(f"checking: {', '.join(left)}")

        yield looked_at


def _print(findings: Sequence[Finding]) -> None:
    from proxy.check.findings import Level

    for kind, found in groupby(findings, key=lambda finding: finding.kind):
        typer.echo(typer.style(kind, bold=True))
        for finding in found:
            typer.echo(f"  {_mark(finding.level)} {finding.line}")
    counts = {level: sum(finding.level is level for finding in findings) for level in (Level.ERROR, Level.WARNING)}
    counted = [f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items() if count]
    typer.echo(", ".join(counted) or "all is well")


def _mark(level: Level) -> str:
    from proxy.check.findings import Level

    sign, colour = {
        Level.OK: ("✓", typer.colors.GREEN),
        Level.WARNING: ("!", typer.colors.YELLOW),
        Level.ERROR: ("✗", typer.colors.RED),
        Level.SKIPPED: ("–", typer.colors.WHITE),
    }[level]
    return typer.style(f"{sign} {level:<7}", fg=colour)
