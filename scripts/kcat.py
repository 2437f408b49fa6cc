"""kcat with its old librdkafka, from Debian's packages, into `.servers/kcat`: nothing is installed, nobody is root.

It is a client of the conformance suite. Where there is no apt, or its archive has other versions, set-up goes on
without it, and the tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from jars import SERVERS, say

from proxy.demo import servers
from proxy.demo.errors import StackError

PINNED = ("kcat=1.7.1-2", "librdkafka1=2.0.2-1")
"""The versions are the point: newer packages would be another client."""
ALONGSIDE = ("libyajl2",)
ON_MOST_SYSTEMS = ("liblz4-1", "libsasl2-2", "libssl3", "libzstd1", "zlib1g")
"""Fetched only where the program does not run without them."""


def fetch_kcat() -> None:
    """Fetch it unless it is there; a line says so where that can't be done."""
    stamp, wanted = SERVERS / "kcat" / "made-from", " ".join(PINNED)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    building = SERVERS / "kcat.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    reason = _unpack(building)
    if reason:
        say(f"no kcat, so tests that need it are skipped: {reason}")
    else:
        (building / "made-from").write_text(wanted)
        shutil.rmtree(SERVERS / "kcat", ignore_errors=True)
        building.rename(SERVERS / "kcat")
        say("kcat is there")
    shutil.rmtree(building, ignore_errors=True)


def _unpack(into: Path) -> str:
    """Download and unpack; why that failed, or nothing."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "this system has no apt-get and dpkg-deb"
    say("fetching kcat")
    if reason := _download((*PINNED, *ALONGSIDE), into):
        return reason
    if not _runs(into):
        if reason := _download(ON_MOST_SYSTEMS, into):
            return reason
        if not _runs(into):
            return "it does not run here"
    return ""


def _download(packages: Sequence[str], into: Path) -> str:
    # Lists of our own: the system's may be empty or old, and renewing those takes root.
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
    """The last line of what a failed command wrote; nothing where it succeeded."""
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    written = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
    errors = [line for line in written if line.startswith("E:")]
    return (errors or written)[-1] if done.returncode else ""


def _runs(directory: Path) -> bool:
    try:
        program, environment = servers.kcat(directory)
    except StackError:
        return False
    return subprocess.run([program, "-V"], env=environment, capture_output=True, check=False).returncode == 0
