"""`diskless-proxy --version`."""

from __future__ import annotations

from typer.testing import CliRunner

from proxy import __version__
from proxy.cli import app


def test_the_version_is_printed() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"diskless-proxy {__version__}\n")


def test_no_command_still_prints_the_help() -> None:
    done = CliRunner().invoke(app, [])
    assert "Usage" in done.output
    assert "--version" in done.output
