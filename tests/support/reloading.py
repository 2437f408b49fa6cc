"""Change the settings of a running proxy as an operator would: rewrite the file, then send SIGHUP."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from proxy.demo.proxies import merged
from proxy.demo.stack import Stack
from proxy.demo.waiting import wait_until

RELOADED, REFUSED, NEED_RESTART = "settings_reloaded", "settings_not_reloaded", "settings_need_restart"


def lines_with(log: Path, event: str) -> list[str]:
    """Return the lines of a log with that event."""
    return [line for line in log.read_text(errors="replace").splitlines() if f"] {event} " in f"{line} "]


def hang_up(pid: int, log: Path, event: str, *, lines: int = 1) -> list[str]:
    """Send SIGHUP, wait until the log has `count` more lines with the event, and return these lines."""
    before = len(lines_with(log, event))
    os.kill(pid, signal.SIGHUP)
    return wait_lines(log, event, before + lines)[before:]


def wait_lines(log: Path, event: str, lines: int = 1) -> list[str]:
    """Wait until the log has at least `count` lines with that event, and return all of them."""

    def complaint() -> str:
        return "" if len(lines_with(log, event)) >= lines else f"{log} has fewer than {lines} lines with {event}"

    wait_until(complaint, 60, threading.Event(), str)
    return lines_with(log, event)


@contextmanager
def reloaded(stack: Stack, rack: str, overrides: Mapping[str, Any], *, processes: int = 1) -> Iterator[list[str]]:
    """Run the rack's proxy with other settings during the context, and restore the previous settings after it.

    `processes` is the number of processes that log the reload; yields their lines.
    """
    path, process = stack.config_path(rack), stack.process(f"proxy-{rack}")
    before = path.read_text()
    path.write_text(yaml.safe_dump(merged(yaml.safe_load(before), overrides)))
    try:
        yield hang_up(process.pid, process.log, RELOADED, lines=processes)
    finally:
        path.write_text(before)
        hang_up(process.pid, process.log, RELOADED, lines=processes)
