"""`diskless-proxy run`: the product itself, against brokers that already run."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from proxy.config import ConfigError, load_settings
from proxy.console.config_file import config_option
from proxy.telemetry.logs import configure_logging


def run(config: Annotated[Path, config_option("The YAML file with the settings.")]) -> None:
    """Run a proxy until SIGTERM (drain) or a second one (at once); SIGHUP reads the file again."""
    from proxy.process.memory_trim import keep_freed_memory
    from proxy.process.ports import StartError
    from proxy.process.threads import favour_the_event_loop
    from proxy.server.server import Server
    from proxy.server.workers import Workers

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until someone reloads by it: its default is to end the process
    keep_freed_memory()
    favour_the_event_loop()
    read = partial(load_settings, config)
    try:
        settings = read()
        configure_logging(settings.log_level, settings.log_format)
        alone = settings.workers == 1
        try:
            uvloop.run((Server(settings, read_settings=read) if alone else Workers(settings, read)).run())
        finally:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the loop has put the default back; the end takes a moment
    except (ConfigError, StartError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
