"""The settings file that a command reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

CONFIG_VARIABLE = "DISKLESS_PROXY_CONFIG"
DEFAULT_CONFIG = Path("/etc/diskless-proxy/proxy.yaml")
"""Read if neither the option nor the variable names a settings file."""


def settings_file() -> Path:
    """Return the file to read if no option names one."""
    return Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def config_option(help_text: str) -> Any:
    """Return the option `--config`, which may be left out."""
    return typer.Option(
        "--config",
        envvar=CONFIG_VARIABLE,
        default_factory=lambda: DEFAULT_CONFIG,
        show_default=str(DEFAULT_CONFIG),
        help=help_text,
    )
