"""The previous release: its tree from the history of this repository, and how its proxy is run."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

from proxy.coordinator.layout import FORMAT_VERSION

ROOT = Path(__file__).parents[2]
LAYOUT = "proxy/coordinator/layout.py"
"""The file that sets the store format."""
GIT_SECONDS = 60


def git(*arguments: str) -> bytes:
    """Return the output of git. Raises OSError, and SubprocessError if it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=True).stdout


@cache
def before() -> str:
    """Return the newest tag of a release before this commit. Its dependencies are those of this release."""
    return git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^").decode().strip()


def why_not() -> str:
    """Return why there is no release to upgrade from; empty if there is one."""
    try:
        layout = git("show", f"{before()}:{LAYOUT}").decode()
    except (OSError, subprocess.SubprocessError):
        return "the clone has no tag of an earlier release (v…) with a proxy: nothing was released, or git fetch --tags"
    (its_format,) = re.findall(r"^FORMAT_VERSION = (\d+)$", layout, re.MULTILINE)
    if int(its_format) != FORMAT_VERSION:
        return f"{before()} has store format {its_format}, and this release {FORMAT_VERSION}: they can't share a store"
    return ""


def program(directory: Path) -> tuple[str, ...]:
    """Put the packages of the previous release into a directory; return the program that runs it."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", before(), "proxy", "pipeline"))) as archive:
        archive.extractall(directory, filter="data")
    # Without -P the working directory, which has this release, would come first.
    return ("/usr/bin/env", f"PYTHONPATH={directory}", sys.executable, "-P", "-m", "proxy")
