"""`diskless-proxy demo`: the whole stack on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class StorageKind(StrEnum):
    """Where WAL segments are kept."""

    file = "file"
    s3 = "s3"


def demo(
    serve_only: Annotated[
        bool, typer.Option("--serve", help="Start everything without load, until SIGTERM or Ctrl-C.")
    ] = False,
    info: Annotated[
        Path | None, typer.Option(help="With --serve: a JSON file with addresses and process IDs, once all is ready.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", file_okay=False, help="Keep data and logs there; else nothing is left behind."),
    ] = None,
    port_base: Annotated[
        int | None, typer.Option(min=1024, max=65_000, help="First of a range of ports; else a free range is found.")
    ] = None,
    storage: Annotated[
        StorageKind, typer.Option(help="Where WAL segments are kept: in files, or in a real S3 server.")
    ] = StorageKind.file,
) -> None:
    """Start brokers in three racks, a Redis-compatible server, object storage and a proxy per rack on this machine."""
    # Not above: every other command would pay for the import.
    from rich.console import Console

    from proxy.demo.errors import StackError
    from proxy.demo.serve import serve
    from proxy.demo.stack import StackOptions

    if not serve_only:
        raise typer.BadParameter("only --serve is there yet")
    try:
        serve(StackOptions(directory=directory, port_base=port_base, storage=storage.value), info, Console())
    except StackError as error:
        Console(stderr=True).print(f"error: {error}", style="red", soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(1) from error
