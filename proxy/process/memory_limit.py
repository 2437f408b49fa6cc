"""How much memory the container of this process may have."""

from __future__ import annotations

from pathlib import Path

_FILES = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"
"""Limit files of cgroups 2 and 1, in bytes. Without a limit the value is `max` or, in cgroups 1, more than any machine
has."""


def container_limits(root: Path = Path("/")) -> list[int]:
    """Return the container's memory limits in bytes; empty if there are none. `root` is the root of the file system."""
    limits = [_read(root / name).strip() for name in _FILES]
    return [int(text) for text in limits if text.isdecimal()]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
