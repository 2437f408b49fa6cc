"""Fetch kcat with its old librdkafka from Debian's packages into `.servers/kcat`, without installing it and without
root.

It is a client of the conformance suite. Without apt, or if the archive has other versions, set-up continues, and the
tests that need it are skipped.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import debian
from jars import say
from optional import make_once

from proxy.demo import servers
from proxy.demo.errors import StackError

PINNED = ("kcat=1.7.1-2", "librdkafka1=2.0.2-1")
"""Packages with exact versions: newer ones would be another client."""
ALONGSIDE = ("libyajl2",)
ON_MOST_SYSTEMS = ("liblz4-1", "libsasl2-2", "libssl3", "libzstd1", "zlib1g")
"""Packages that are fetched only if the program does not run without them."""


def fetch_kcat() -> None:
    """Fetch it if it is missing; print a line if that is impossible."""
    make_once("kcat", " ".join(PINNED), _unpack, what="kcat", skipped="tests that need it")


def _unpack(into: Path) -> str:
    """Download and unpack it; return why that failed, or an empty string."""
    if reason := debian.why_not():
        return reason
    say("fetching kcat")
    if reason := debian.unpack((*PINNED, *ALONGSIDE), into):
        return reason
    if not _runs(into):
        if reason := debian.unpack(ON_MOST_SYSTEMS, into):
            return reason
        if not _runs(into):
            return "it does not run here"
    return ""


def _runs(directory: Path) -> bool:
    try:
        program, environment = servers.kcat(directory)
    except StackError:
        return False
    return subprocess.run([program, "-V"], env=environment, capture_output=True, check=False).returncode == 0
