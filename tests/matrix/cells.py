"""The cells of the matrix: which fault happens to which part, in which mode, and whether producers write meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Mode(StrEnum):
    """The mode of the journal (`journal.mode`)."""

    REQUIRED = "required"
    OFF = "off"


class Fault(StrEnum):
    """The kind of fault."""

    KILL = "kill -9"
    STOP = "SIGSTOP, SIGCONT"
    CUT = "network cut"
    LATENCY = "1 s latency"
    RESET = "connections reset"
    DISK_FULL = "disk full"
    CLOCK = "clock a day ahead"


class Target(StrEnum):
    """The part."""

    PROXY = "proxy"
    REDIS = "Redis"
    REDIS_DROPPED = "Redis, last commits dropped"
    REDIS_WIPED = "Redis, wiped"
    S3 = "S3"
    BROKER = "broker"
    JOURNAL_LEADER = "journal leader"
    SNAPSHOT_WRITER = "snapshot writer"
    RACK = "rack"


class Cell(NamedTuple):
    """One cell."""

    mode: Mode
    target: Target
    fault: Fault
    loaded: bool
    """True if producers write while the fault lasts; consumers read in any case."""

    def __str__(self) -> str:
        return f"{self.mode}: {self.target}, {self.fault}, {'with' if self.loaded else 'without'} load"


def why_not(cell: Cell, *, mounts: bool) -> str:
    """Return why a cell is not run; empty if it is. `mounts`: this user may mount file systems."""
    target, fault = cell.target, cell.fault
    if fault is Fault.DISK_FULL and target in (Target.PROXY, Target.SNAPSHOT_WRITER):
        return "a proxy keeps nothing on disk"
    if fault is Fault.DISK_FULL and not mounts:
        return "only root can mount a small file system"
    if fault is Fault.CLOCK and target is Target.S3:
        return "the S3 server reads the clock past the C library"
    if cell.mode is Mode.OFF and target in (Target.REDIS_DROPPED, Target.REDIS_WIPED):
        return "acknowledged records are lost, as documented: `make failover-run` compares the losses with the reports"
    if cell.mode is Mode.OFF and target is Target.JOURNAL_LEADER:
        return "there is no journal"
    if cell.mode is Mode.OFF and target is Target.SNAPSHOT_WRITER:
        return "there are no snapshots"
    return ""


def all_cells(modes: tuple[Mode, ...]) -> Iterator[Cell]:
    """Yield all cells of these modes."""
    for mode in modes:
        for target in Target:
            for fault in Fault:
                for loaded in (True, False):
                    yield Cell(mode, target, fault, loaded)
