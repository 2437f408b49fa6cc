"""The command line: one file per command."""

from __future__ import annotations

import typer

from proxy.cli import coordinator, segments, topics
from proxy.cli.run import run

app = typer.Typer(
    name="diskless-proxy",
    help="Diskless topics, rack-true metadata and rack-local reads for unmodified Apache Kafka brokers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(run)
app.add_typer(topics.app, name="topics")
app.add_typer(segments.app, name="segments")
app.add_typer(coordinator.app, name="coordinator")


def main() -> None:
    """Entry point of `diskless-proxy`."""
    try:
        from proxy.cli.demo import demo
    except ImportError as error:
        _without_demo(str(error.name))
    else:
        app.command()(demo)
    app()


def _without_demo(missing: str) -> None:
    """The demo's servers and clients are an extra of the package."""

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def demo() -> None:
        """Start a whole stack on this machine (needs the extra `demo`)."""
        typer.echo(f"error: {missing} is not installed; install the extra: diskless-proxy[demo]", err=True)
        raise typer.Exit(1)
