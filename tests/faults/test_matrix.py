"""A few cells of the fault matrix; `python -m tests.matrix` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.cells import Cell, Fault, Mode, Target, all_cells, why_not
from tests.matrix.run import Options, run

SHORT = ("Redis, wiped, kill -9", "journal leader, SIGSTOP")


def test_each_cell_runs_or_says_why_not() -> None:
    cells = list(all_cells(tuple(Mode)))
    assert len(cells) == len(set(cells)) == 2 * len(Target) * len(Fault) * 2
    runs = [cell for cell in cells if not why_not(cell, mounts=True)]
    assert len(runs) > len(cells) / 2
    assert {cell.target for cell in runs} == set(Target)
    assert {cell.fault for cell in runs} == set(Fault)
    assert Cell(Mode.REQUIRED, Target.REDIS_WIPED, Fault.KILL, loaded=True) in runs


@pytest.mark.timeout(600)
@pytest.mark.parametrize("words", SHORT)
def test_cells_are_judged_without_an_anomaly(tmp_path: Path, words: str) -> None:
    rows = run(Options(tmp_path, 7, 10.0, (Mode.REQUIRED,), words), print, lambda row: None)
    assert [(row.target, row.fault, row.problem) for row in rows if row.problem] == []
    assert sum(not row.not_run for row in rows) == 2
    assert min(row.acknowledged for row in rows) > 0
