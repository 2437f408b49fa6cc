"""How much memory the container of this process may have."""

from __future__ import annotations

from pathlib import Path

_FILES = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"
"""By cgroups 2 and 1: in bytes; without a limit `max`, or, by cgroups 1, more than any machine has."""


def container_limits(root: Path = Path("/")) -> list[int]:
    """What the kernel tells, in bytes; empty if there is no limit, or none is told. `root`: where it is told."""
    told = [_read(root / name).strip() for name in _FILES]
    return [int(text) for text in told if text.isdecimal()]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
