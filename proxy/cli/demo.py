"""`diskless-proxy demo`: the whole stack on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

app = typer.Typer(invoke_without_command=True)

MAX_WARM_UP_SECONDS = 10.0
"""Brokers that have just started are slow; latencies of that time don't count, the records do."""


class StorageKind(StrEnum):
    """Storage for WAL segments."""

    file = "file"
    s3 = "s3"


class StoreKind(StrEnum):
    """The coordinator's store."""

    single = "single"
    cluster = "cluster"
    sentinel = "sentinel"


@app.callback()
def demo(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=1, help="How long the load runs.")] = 20.0,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Progress to standard error; the results as the last line of standard output."),
    ] = False,
    rate: Annotated[float, typer.Option(min=1, help="Records a second of each producer.")] = 200.0,
    record_bytes: Annotated[int, typer.Option(min=64, max=900_000, help="Size of each record's value.")] = 1024,
    producers: Annotated[int, typer.Option(min=1, max=20, help="Producers per rack and topic.")] = 2,
    serve_only: Annotated[
        bool, typer.Option("--serve", help="Start everything without load, until SIGTERM or Ctrl-C.")
    ] = False,
    info: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file with addresses and process IDs, from when all is ready to the end. With --serve there is "
            "another one in any case, where `demo hello` looks for it."
        ),
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
    redis: Annotated[
        StoreKind,
        typer.Option(help="One server, a cluster of three, or a primary and a replica that three Sentinels watch."),
    ] = StoreKind.single,
) -> None:
    """Start brokers in three racks, a Redis-compatible server, object storage and a proxy per rack, and try them.

    Producers and consumers in all racks write and read a classic and a diskless topic at once. At the end the command
    reports lost, duplicated and disordered records; the exit code is 1 if there are any. Ctrl-C ends the load early.
    """
    if context.invoked_subcommand is not None:
        return
    # Not above: every other command would pay for the import.
    from rich.console import Console

    from proxy.demo.demonstrate import DemoOptions, demonstrate
    from proxy.demo.errors import StackError
    from proxy.demo.load import LoadOptions
    from proxy.demo.ports import outgoing_ports, warning_of
    from proxy.demo.serve import serve
    from proxy.demo.stack import StackOptions

    stack = StackOptions(directory=directory, port_base=port_base, storage=storage.value, redis=redis.value)
    load = LoadOptions(
        producers_per_rack=producers,
        records_per_second=rate,
        record_bytes=record_bytes,
        warm_up_seconds=min(MAX_WARM_UP_SECONDS, seconds / 2),
    )
    if (warning := warning_of(port_base, outgoing_ports())) is not None:
        Console(stderr=True).print(f"warning: {warning}", style="yellow", soft_wrap=True, markup=False, highlight=False)
    try:
        if serve_only:
            serve(stack, info, Console())
        else:
            raise typer.Exit(demonstrate(DemoOptions(stack, load, seconds, as_json, info)))
    except StackError as error:
        _fail(error)


@app.command()
def hello(
    text: Annotated[str, typer.Argument(help="The record.")] = "hello from another rack",
    info: Annotated[
        Path | None, typer.Option(help="The information file of the demo that runs; that of the last `demo --serve`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="What was seen, as one JSON object.")] = False,
) -> None:
    """Produce a diskless record in one rack and read it in another one, at a running demo (`demo --serve`).

    Shows the broker that each client took for the partition's leader, the object that holds the record, and the bytes
    that crossed racks. The exit code is 1 if anything failed.
    """
    import json
    from dataclasses import asdict

    from rich.console import Console

    from proxy.demo.errors import StackError
    from proxy.demo.hello import lines, read_info, say_hello
    from proxy.demo.info import default_path
    from proxy.inspection.stores import InspectionError

    waiting = Console(stderr=True)
    try:
        found = read_info(info or default_path())
        seen = say_hello(found, text, lambda part: waiting.print(f"{part} …", style="dim", highlight=False))
    except (StackError, InspectionError) as error:
        _fail(error)
    if as_json:
        typer.echo(json.dumps(asdict(seen)))
        return
    typer.echo("\n".join(["", *lines(seen)]))


def _fail(error: Exception) -> NoReturn:
    from rich.console import Console

    Console(stderr=True).print(f"error: {error}", style="red", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1) from error
