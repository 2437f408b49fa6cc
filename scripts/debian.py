"""Unpack packages of Debian into a directory, without installing them and without root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def why_not() -> str:
    """Return why nothing can be unpacked on this system; empty if it can."""
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        return ""
    return "this system has no apt-get and dpkg-deb"


def unpack(packages: Sequence[str], into: Path) -> str:
    """Download the packages, `name` or `name=version`, and unpack them; return why that failed, or an empty string."""
    # Use separate package lists: the system's may be empty or old, and updating them takes root.
    lists = into / "apt"
    options = ["-o", f"Dir::State::lists={lists}/lists", "-o", f"Dir::Cache={lists}/cache", "-o", "Debug::NoLocking=1"]
    reason = ""
    for attempt in ([], options):
        if attempt:
            for part in ("lists/partial", "cache/archives/partial"):
                (lists / part).mkdir(parents=True, exist_ok=True)
            _run(["apt-get", *attempt, "update"], into)
        reason = _run(["apt-get", *attempt, "download", *packages], into)
        if not reason:
            break
    shutil.rmtree(lists, ignore_errors=True)
    if reason:
        return reason
    for package in sorted(into.glob("*.deb")):
        if reason := _run(["dpkg-deb", "-x", str(package), str(into)], into):
            return reason
        package.unlink()
    return ""


def _run(command: list[str], directory: Path) -> str:
    """Return the last line that a failed command wrote; empty if it succeeded."""
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    written = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
    errors = [line for line in written if line.startswith("E:")]
    return (errors or written)[-1] if done.returncode else ""
