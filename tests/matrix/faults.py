"""The faults: each begins, lasts for a while, and ends. Then everything runs again that was running before."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from tests.matrix.cells import Cell, Fault, Target
from tests.matrix.world import Part, World

LATENCY_MS = 1_000
DAY_S = 86_400.0
LEFT_FREE_BYTES = 4_096
_FILLER = "filler"
_INDEX_ENTRY_BYTES = 17


def carry_out(world: World, cell: Cell, chance: Random) -> str:
    """Let a fault happen, and end; return what it happened to, and for how long."""
    part = world.part(cell.target, chance)
    seconds = chance.uniform(1.0, 3.0) if cell.fault is Fault.KILL else chance.uniform(3.0, 8.0)
    wiped, dropped = cell.target is Target.REDIS_WIPED, cell.target is Target.REDIS_DROPPED
    with _fault(world, cell, part), world.probing():
        time.sleep(seconds)
        if wiped and cell.fault in (Fault.CUT, Fault.LATENCY, Fault.RESET, Fault.CLOCK):
            world.flush_redis()
    if dropped:
        world.drop_last_commits(chance)
    elif wiped and cell.fault in (Fault.KILL, Fault.DISK_FULL):
        world.empty_redis()
    elif wiped and cell.fault is Fault.STOP:
        world.flush_redis()
    world.stack.heal()
    return f"{', '.join(part.processes)}, {seconds:.1f} s"


@contextmanager
def _fault(world: World, cell: Cell, part: Part) -> Iterator[None]:
    processes = [world.stack.process(name) for name in part.processes]
    match cell.fault:
        case Fault.KILL:
            for process in processes:
                process.kill()
            yield
            world.stack.heal()
        case Fault.STOP:
            for process in processes:
                process.pause()
            yield
            for process in processes:
                process.resume()
        case Fault.CUT:
            for link in part.links:
                link.disable()
            yield
            for link in part.links:
                link.enable()
        case Fault.LATENCY | Fault.RESET:
            kind, attributes = (
                ("latency", {"latency": LATENCY_MS}) if cell.fault is Fault.LATENCY else ("reset_peer", {"timeout": 0})
            )
            for link in part.links:
                link.add_toxic(name="toxic", type=kind, stream="downstream", attributes=attributes)
            yield
            for link in part.links:
                link.destroy_toxic("toxic")
        case Fault.DISK_FULL:
            for disk in part.disks:
                _fill(disk)
            yield
            for disk in part.disks:
                (disk / _FILLER).unlink()
            if cell.target is Target.S3:
                # SeaweedFS's own database fails for some names after a full disk, until it is started again.
                processes[0].kill()
                for disk in part.disks:
                    _cut_torn_entries(disk)
            world.stack.heal()
        case Fault.CLOCK:
            world.set_clocks(part, DAY_S)
            yield
            world.set_clocks(part, 0.0)


def _cut_torn_entries(disk: Path) -> None:
    """Remove the end of a write to an index of SeaweedFS that found no room: it was not acknowledged.

    SeaweedFS refuses the whole volume for it, and with it objects that it has acknowledged.
    """
    for index in disk.glob("*.idx"):
        size = index.stat().st_size
        os.truncate(index, size - size % _INDEX_ENTRY_BYTES)


def _fill(disk: Path) -> None:
    path = disk / _FILLER
    free = shutil.disk_usage(disk).free
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while free > LEFT_FREE_BYTES:
            free -= filler.write(block[: min(len(block), free - LEFT_FREE_BYTES)])
