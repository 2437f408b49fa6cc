"""The previous release: its tree from the repository's history, and how to run its proxy."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

BEFORE = "e5179a9"
"""Last commit of the previous release. It runs with the dependencies of this release."""
ROOT = Path(__file__).parents[2]
ARCHIVE_SECONDS = 60


def why_not() -> str:
    """Return why its tree is not available; empty if it is."""
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "cat-file", "-e", f"{BEFORE}^{{commit}}"],
        capture_output=True,
        text=True,
        timeout=ARCHIVE_SECONDS,
        check=False,
    )
    return "" if asked.returncode == 0 else f"the clone has no commit {BEFORE}: git fetch --unshallow"


def program(directory: Path) -> tuple[str, ...]:
    """Put the packages of the previous release into a directory; return the program that runs it."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", BEFORE, "proxy", "pipeline"],
        capture_output=True,
        timeout=ARCHIVE_SECONDS,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    # Without -P, the working directory, which has this release, would come first.
    return ("/usr/bin/env", f"PYTHONPATH={directory}", sys.executable, "-P", "-m", "proxy")
