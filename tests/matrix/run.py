"""One run of the matrix: cells in an order from the seed, a history for a few of them at a time, and its verdict."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from proxy.demo.errors import StackError
from proxy.judge.report import text
from proxy.verify.options import VerifyError, VerifyOptions
from proxy.verify.verification import Verification
from tests.matrix.cells import Cell, Mode, all_cells, why_not
from tests.matrix.faults import carry_out
from tests.matrix.world import World, can_mount, world_of

CELLS_PER_HISTORY = 6
RECORDS_BETWEEN = 40
"""Records that the load has acknowledged before each fault, and after it."""
WAIT_S = 120.0
RATE = 60.0


@dataclass
class Row:
    """The result of a cell."""

    mode: str
    target: str
    fault: str
    loaded: bool
    seed: int
    happened: str = ""
    answered_s: dict[str, float] = field(default_factory=dict)
    """Seconds from the end of the fault until a record was acknowledged, by kind of topic."""
    acknowledged: int = 0
    """Records of the whole history that the cell is part of."""
    problem: str = ""
    not_run: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    directory: Path
    seed: int
    minutes: float
    """Time after which no further cell begins."""
    modes: tuple[Mode, ...] = tuple(Mode)
    only: str = ""
    """Words that the name of a cell has to have; all cells if empty."""


def run(options: Options, progress: Callable[[str], None], keep: Callable[[Row], None]) -> list[Row]:
    """Run cells until the time is over; `keep` gets each row when its history has been judged."""
    mounts = can_mount(options.directory / "mount")
    deadline = time.monotonic() + options.minutes * 60
    chance = Random(options.seed)
    rows: list[Row] = []
    for number, mode in enumerate(options.modes):
        cells = [cell for cell in all_cells((mode,)) if options.only.casefold() in str(cell).casefold()]
        runs = [cell for cell in cells if not why_not(cell, mounts=mounts)]
        # Each mode has a share of the time, by its number of cells.
        left = sum(not why_not(cell, mounts=mounts) for cell in all_cells(options.modes[number:]))
        of_mode = sum(not why_not(cell, mounts=mounts) for cell in all_cells((mode,)))
        until = time.monotonic() + (deadline - time.monotonic()) * of_mode / left
        rows += [_row(cell, options.seed, not_run=why_not(cell, mounts=mounts)) for cell in cells if cell not in runs]
        chance.shuffle(runs)
        directory = options.directory / mode
        directory.mkdir()
        if not runs:
            continue
        with world_of(mode, directory, mounts=mounts) as world:
            while runs and time.monotonic() < until:
                some, runs = runs[:CELLS_PER_HISTORY], runs[CELLS_PER_HISTORY:]
                done = _history(world, some, chance, directory, until, progress)
                rows += done
                runs += some[len(done) :]
                for row in done:
                    keep(row)
        rows += [_row(cell, options.seed, not_run="the run's time was over") for cell in runs]
    return rows


def _row(cell: Cell, seed: int, not_run: str = "") -> Row:
    return Row(cell.mode, cell.target, cell.fault, cell.loaded, seed, not_run=not_run)


def _history(
    world: World, cells: Sequence[Cell], chance: Random, directory: Path, until: float, progress: Callable[[str], None]
) -> list[Row]:
    """Run cells under one load, and judge its history."""
    rows: list[Row] = []
    path = directory / f"history-{time.time_ns()}"
    options = VerifyOptions(world.bootstrap, seed=chance.randrange(2**32), rate=RATE, producers=1, members=1)
    try:
        with Verification(options, path) as running:
            for cell in cells:
                if rows and time.monotonic() > until:
                    break
                seed = chance.randrange(2**32)
                rows.append(_row(cell, seed))
                progress(f"{cell} (seed {seed})")
                running.resume()
                running.wait_for(RECORDS_BETWEEN, timeout_seconds=WAIT_S)
                if not cell.loaded:
                    running.pause()
                rows[-1].happened = carry_out(world, cell, Random(seed))
                rows[-1].answered_s = world.wait_answers()
            running.resume()
            running.wait_for(RECORDS_BETWEEN, timeout_seconds=WAIT_S)
            progress("judging")
            verdict = running.finish()
            for row in rows:
                row.acknowledged = verdict.counts.acknowledged
                if not verdict.ok:
                    row.problem = f"{dict(verdict.totals)}; history {path.name}"
            if verdict.ok:
                running.delete_topics()
                path.unlink()
            else:
                (directory / f"{path.name}.txt").write_text(text(verdict))
    except (StackError, VerifyError, AssertionError, OSError) as error:
        traceback.print_exc()
        for row in rows:
            row.problem = "not judged: a later cell ended the load"
        if rows:
            rows[-1].problem = f"{type(error).__name__}: {error}"[:500]
        world.stack.heal()
    return rows
