"""Fetch Prometheus and promtool from Debian's package into `.servers/prometheus`; only tests need them.

Any version in the archive is fine, because rules and queries are the same for all. Without apt, set-up continues, and
the tests that need it are skipped.
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
    """Fetch it if it is missing; print a line if that is impossible."""
    make_once("prometheus", PACKAGE, _unpack, what="prometheus", skipped="tests that need it")


def _unpack(into: Path) -> str:
    """Download the package and keep its programs; return why that failed, or an empty string."""
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
