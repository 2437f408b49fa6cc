"""The command line: one file per command."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from proxy import __version__
from proxy.cli import config, coordinator, journal, segments, topics
from proxy.cli.check import check
from proxy.cli.connections import connections
from proxy.cli.fleet import fleet
from proxy.cli.run import run
from proxy.cli.top import top
from proxy.cli.verify import verify

app = typer.Typer(
    name="diskless-proxy",
    help="A Kafka proxy that keeps topics in object storage and traffic in its zone, in front of unmodified brokers.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.command()(run)
app.command()(check)
app.command()(fleet)
app.command()(top)
app.command()(connections)
app.command()(verify)
app.add_typer(topics.app, name="topics")
app.add_typer(segments.app, name="segments")
app.add_typer(coordinator.app, name="coordinator")
app.add_typer(journal.app, name="journal")
app.add_typer(config.app, name="config")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diskless-proxy {__version__}")
        raise typer.Exit


@app.callback()
def _any_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of `diskless-proxy`."""
    # kio prepares its types for Hypothesis, a library of tests, where that is installed: a fifth of a start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    add_commands()
    app()


def add_commands() -> None:
    """Add the commands that need an extra of the package, or say which extra is missing. Call it once."""
    try:
        from proxy.cli import demo
    except ImportError as error:
        _without_demo(str(error.name))
    else:
        app.add_typer(demo.app, name="demo")
    _add_pipeline()


def _add_pipeline() -> None:
    """The jobs on Spark, which is an extra of the package."""
    if find_spec("pyspark") is not None:
        from pipeline.commands import app as jobs

        app.add_typer(jobs, name="pipeline")
        return

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def pipeline() -> None:
        """Batch jobs over object storage, on Spark (needs the extra `pipeline`)."""
        typer.echo("error: pyspark is not installed; install the extra: diskless-proxy[pipeline]", err=True)
        raise typer.Exit(1)


def _without_demo(missing: str) -> None:
    """The demo's servers and clients are an extra of the package."""

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def demo() -> None:
        """Start a whole stack on this machine (needs the extra `demo`)."""
        typer.echo(f"error: {missing} is not installed; install the extra: diskless-proxy[demo]", err=True)
        raise typer.Exit(1)
