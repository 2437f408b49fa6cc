"""Run the fault matrix on its own servers. Exit code 1 if there was an anomaly, or something did not come back."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.matrix.cells import Mode
from tests.matrix.report import page
from tests.matrix.run import Options, Row, run


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--minutes", type=float, default=300.0, help="no cell begins after this time")
    parser.add_argument("--seed", type=int, default=None, help="of all that is chosen at random; printed")
    parser.add_argument("--mode", choices=[str(mode) for mode in Mode], action="append", help="both by default")
    parser.add_argument("--only", default="", help="only cells whose name has these words, as in 'broker, kill'")
    parser.add_argument("--report", type=Path, help="write the report to this page")
    parser.add_argument("--directory", type=Path, help="keep logs and histories here; a temporary directory by default")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    modes = tuple(Mode(mode) for mode in arguments.mode or Mode)
    began = time.monotonic()

    def progress(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}", file=sys.stderr, flush=True)

    def keep(row: Row) -> None:
        print(json.dumps(row.as_json(), ensure_ascii=False), flush=True)

    progress(f"seed {seed}")
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        rows = run(Options(directory.resolve(), seed, arguments.minutes, modes, arguments.only), progress, keep)
    if arguments.report:
        only = f' --only "{arguments.only}"' if arguments.only else ""
        command = f"python -m tests.matrix --minutes {arguments.minutes:g} --seed {seed}{only}"
        arguments.report.write_text(page(rows, seed=seed, seconds=time.monotonic() - began, command=command))
    bad = [row for row in rows if row.problem]
    ran = sum(not row.not_run for row in rows)
    progress(f"{ran} cells ran, {len(bad)} with a problem")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
