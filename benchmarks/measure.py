"""Measure processes from outside, and summarize repeated runs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

LEAST_MEGABYTES = 100
"""Minimum size of a throughput run. Some readers get a quarter of it, and their first batch, of up to 20 MB, is not
counted."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def run_megabytes(text: str) -> int:
    """Return the size of a throughput run, for an argument parser. Raises ArgumentTypeError if it is too small."""
    size = int(text)
    if size < LEAST_MEGABYTES:
        raise argparse.ArgumentTypeError(f"{size} is too little to measure; use {LEAST_MEGABYTES} or more")
    return size


def client(job: str, timeout: float = 300.0, **arguments: Any) -> dict[str, float]:
    """Run a job of `benchmarks.clients` in its own process."""
    command = [sys.executable, "-m", "benchmarks.clients", job, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the user and system time that processes have used so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_SECOND


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Return the resident memory of a process; its peak with `VmHWM`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {field} of process {pid}")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median and extremes of repeated runs."""
    return {"median": median(values), "min": min(values), "max": max(values), "runs": len(values)}
