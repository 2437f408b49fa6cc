"""`diskless-proxy run`: the product itself, against brokers that already run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from proxy.config import ConfigError, load_settings
from proxy.logs import configure_logging


def run(config: Annotated[Path, typer.Option(help="The YAML file with the settings.")]) -> None:
    """Run a proxy until SIGTERM (drain) or a second one (at once)."""
    from proxy.process.ports import StartError
    from proxy.process.threads import favour_the_event_loop
    from proxy.process.workers import Workers
    from proxy.server import Server

    favour_the_event_loop()
    try:
        settings = load_settings(config)
        configure_logging(settings.log_level, settings.log_format)
        uvloop.run((Server(settings) if settings.workers == 1 else Workers(settings)).run())
    except (ConfigError, StartError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
