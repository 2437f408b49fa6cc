"""The number of tasks that fit into this machine's memory, if they run next to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.process.memory_limit import container_limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BESIDE_TASK_BYTES = 64 << 20
"""Bytes of a Python worker itself, and of what it is reading."""


def tasks_at_once(spark: SparkSession, task_bytes: int, *, root: Path = Path("/")) -> int | None:
    """Return how many tasks have room for `task_bytes` each in half of the memory, at most one for each core.

    The other half is the JVM's and the driver's. None if tasks run on other machines, or if the memory is unknown.
    `root` is the root of the file system.
    """
    context = spark.sparkContext
    memory_bytes = available_bytes(root) if str(context.master).startswith("local") else None
    if memory_bytes is None:
        return None
    return max(1, min(context.defaultParallelism, memory_bytes // 2 // (task_bytes + BESIDE_TASK_BYTES)))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the lower of the container's limit and the machine's spare memory; None if both are unknown."""
    return min([*container_limits(root), *_spare_bytes(root)], default=None)


def _spare_bytes(root: Path) -> Iterator[int]:
    try:
        text = (root / "proc/meminfo").read_text()
    except OSError:
        return
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) << 10
