"""The folders of a stack, and what is left of a temporary one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

DIRECTORIES = ("config", "data", "logs", "tmp", "wal")
KEPT = ("config", "logs")
"""Keep the files of a start that failed: its error names files in them."""


def remove(directory: Path, keep: Sequence[str] = ()) -> None:
    """Remove a stack's directory; if it holds any log, all but the folders to `keep`."""
    logs = directory / "logs"
    if not keep or not logs.is_dir() or not any(logs.iterdir()):
        shutil.rmtree(directory, ignore_errors=True)
        return
    for name in DIRECTORIES:
        if name not in keep:
            shutil.rmtree(directory / name, ignore_errors=True)
