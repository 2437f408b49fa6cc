"""Run `diskless-proxy check` on a test's own settings, and read its findings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from typer.testing import CliRunner

from proxy.cli import app
from proxy.demo.ports import ReservedPorts
from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from tests.support.misconfigurations import Misconfiguration

NAME = "checked"
"""Proxy ID of the checked settings."""


def settings_of_another_proxy(stack: Stack, reserved: ReservedPorts, rack: str = "rack-a") -> dict[str, Any]:
    """Return settings of one more proxy of the stack, on its own ports."""
    ports = reserved.ports
    own = {
        "proxy_id": NAME,
        "listeners": {
            "bootstrap_port": ports.bootstrap(0),
            "broker_port_start": ports.broker_port_start(0),
            "broker_node_ids": "1-3",
        },
        "admin": {"port": ports.admin(0)},
        "redis": {"timeout_ms": 8_000},
    }
    return merged(stack.proxies[rack].settings, own)


def written(directory: Path, settings: Mapping[str, Any] | str) -> Path:
    """Write the settings file and return its path."""
    path = directory / "proxy.yaml"
    path.write_text(settings if isinstance(settings, str) else yaml.safe_dump(dict(settings)))
    return path


class Said(NamedTuple):
    """Exit code and output of a command."""

    exit_code: int | None
    stdout: str
    stderr: str


def checked(path: Path, *options: str) -> Said:
    """Run `check` in this process."""
    return _invoked("check", "--config", str(path), *options)


def refused(path: Path) -> Said:
    """Run `run` in this process, with settings that stop it early."""
    handler, interval_s = signal.getsignal(signal.SIGHUP), sys.getswitchinterval()
    try:
        return _invoked("run", "--config", str(path))
    finally:
        signal.signal(signal.SIGHUP, handler)
        sys.setswitchinterval(interval_s)


def _invoked(*arguments: str) -> Said:
    done = CliRunner().invoke(app, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return Said(done.exit_code, done.stdout, done.stderr)


@contextmanager
def running(path: Path) -> Iterator[Callable[[], Said]]:
    """Run `run` in its own process during the context; the yielded function waits for its end."""
    command = [sys.executable, "-m", "proxy", "run", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def end() -> Said:
            output, errors = process.communicate(timeout=180)
            return Said(process.returncode, output, errors)

        try:
            yield end
        finally:
            process.kill()


def findings(path: Path, *options: str) -> list[dict[str, str]]:
    """Return the findings of `check`."""
    document = json.loads(checked(path, "--json", *options).stdout)
    assert document["ok"] == (not any(finding["level"] == "error" for finding in document["findings"]))
    found: list[dict[str, str]] = document["findings"]
    return found


def without_machine_findings(found: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the findings without those about the size and load of the test machine."""
    return [one for one in found if one["kind"] != "limits" and not one["text"].startswith("answers in")]


def assert_reported(case: Misconfiguration, said: Said, *secrets: str, besides: str = "") -> None:
    """Require that `check` reports the case in exactly one line, and nothing else, except what names `besides`."""
    _assert_failed(said, secrets)
    lines = [line.strip() for line in said.stdout.splitlines() if not besides or besides not in line]
    errors = [line.removeprefix("✗ error").strip() for line in lines if line.startswith("✗")]
    warnings = [line.removeprefix("! warning").strip() for line in lines if line.startswith("!")]
    reported = warnings if case.is_warning else errors
    matching = [line for line in reported if case.pattern.fullmatch(line)]
    assert len(matching) == 1, (case.line, errors, warnings)
    assert errors == ([] if case.is_warning else matching)


def assert_refused(case: Misconfiguration, said: Said, *secrets: str) -> None:
    """Require that `run` ends with one line that says the same."""
    _assert_failed(said, secrets)
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("error: ")]
    assert case.pattern.search(line), (case.line, line)


def _assert_failed(said: Said, secrets: tuple[str, ...]) -> None:
    assert said.exit_code == 1, said
    for unwanted in ("Traceback", *secrets):
        assert unwanted not in said.stdout + said.stderr
