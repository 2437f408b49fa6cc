"""The version of the Java that a launcher starts."""

from __future__ import annotations

import re
import subprocess

_ANSWERS_WITHIN_SECONDS = 30


def java_version(launcher: str) -> int:
    """Return the feature version (17, 21, …) of a launcher; 0 if it does not run."""
    command = [launcher, "-version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', result.stderr)
    return int(found[1]) if found else 0
