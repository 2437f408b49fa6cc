"""Prometheus and promtool, from Debian's package, into `.servers/prometheus`: only tests need them.

Whichever version the archive has is taken, as rules and queries are the same for all. Where there is no apt, set-up
goes on without it, and the tests that need it are skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import debian
from jars import say
from optional import make_once

PACKAGE = "prometheus"
PROGRAMS = ("prometheus", "promtool")


def fetch_prometheus() -> None:
    """Fetch it unless it is there; a line says so where that can't be done."""
    make_once("prometheus", PACKAGE, _unpack, what="prometheus", skipped="tests that need it")


def _unpack(into: Path) -> str:
    """Download the package and keep its programs; why that failed, or nothing."""
    if reason := debian.why_not():
        return reason
    say("fetching prometheus")
    if reason := debian.unpack([PACKAGE], into):
        return reason
    unpacked = list(into.iterdir())
    for name in PROGRAMS:
        program = into / "usr" / "bin" / name
        if not program.exists() or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
            return "it does not run here"
        program.rename(into / name)
    for directory in unpacked:
        shutil.rmtree(directory, ignore_errors=True)
    return ""
