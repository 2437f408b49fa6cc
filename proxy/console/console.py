"""Common parts of the commands: progress on standard error, errors in one line."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from proxy.console.config_file import config_option

if TYPE_CHECKING:
    from rich.console import Console

Answer = TypeVar("Answer")
FAILED = 1
"""The exit code of a command that could not do its work, or that found something wrong."""
_LINES_SECONDS = 5.0

ConfigFile = Annotated[Path, config_option("The settings file of any proxy of the fleet.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document to standard output.")]


def fail(text: str) -> NoReturn:
    """End the command with one line on standard error."""
    typer.echo(f"error: {text}", err=True)
    raise typer.Exit(FAILED)


def run_command(work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run the work to its end; known errors end the command with one line."""
    from proxy.brokers.upstream import BrokerUnreachable
    from proxy.config import ConfigError
    from proxy.coordinator.connect import StoreUnfit
    from proxy.coordinator.interface import CoordinatorUnavailable
    from proxy.diskless.wal.segment import SegmentError
    from proxy.inspection.stores import InspectionError
    from proxy.records.batches import RecordsError
    from proxy.security.tls import TlsError
    from proxy.storage import StorageError
    from proxy.wire.errors import ProtocolError

    known = (
        ConfigError,
        CoordinatorUnavailable,
        StoreUnfit,
        StorageError,
        BrokerUnreachable,
        TlsError,
        InspectionError,
        SegmentError,
        RecordsError,
        ProtocolError,
    )
    try:
        with quiet():
            return asyncio.run(work())
    except known as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader of the output has ended; the interpreter must not try to write the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except OSError as error:
        fail(f"{error.filename or 'the system'}: {error.strerror or error}")


def run_with_admin_port(work: Callable[[], Answer]) -> Answer:
    """Run work that only reads the admin port of a running proxy, as `run_command` does."""
    from proxy.config import ConfigError
    from proxy.console.admin_port import AdminPortError

    try:
        return work()
    except (AdminPortError, ConfigError) as error:
        fail(str(error))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log, because the command itself reports an error once."""
    import structlog

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def output() -> Console:
    """Standard output; a table that no terminal shows is not cut at a width."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=240)


@contextmanager
def progress(doing: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Count progress on standard error: redrawn on a terminal, otherwise a line every few seconds."""
    from rich.console import Console

    console = Console(stderr=True)
    count, shown_s = 0, time.monotonic()

    def show() -> str:
        return f"{doing}: {count:,} {unit}"

    if console.is_terminal:
        with console.status(doing) as status:

            def draw(more: int) -> None:
                nonlocal count
                count += more
                status.update(show())

            yield draw
        return

    def add(more: int) -> None:
        nonlocal count, shown_s
        count += more
        if time.monotonic() - shown_s >= _LINES_SECONDS:
            shown_s = time.monotonic()
            typer.echo(show(), err=True)

    yield add
