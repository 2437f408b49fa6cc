"""Parts of the set-up that may be missing: each is built in a temporary place, and moved when it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from jars import SERVERS, say


def make_once(name: str, wanted: str, make: Callable[[Path], str], *, what: str, skipped: str) -> None:
    """Build `.servers/<name>` from `wanted`, unless it exists. `make` fills a directory, or returns why it cannot.

    If it fails, a line names the tests that are `skipped` without `what`.
    """
    stamp = SERVERS / name / "made-from"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    building = SERVERS / f"{name}.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    reason = make(building)
    if reason:
        say(f"no {what}, so {skipped} are skipped: {reason}")
    else:
        (building / "made-from").write_text(wanted)
        shutil.rmtree(SERVERS / name, ignore_errors=True)
        building.rename(SERVERS / name)
        say(f"{what} is there")
    shutil.rmtree(building, ignore_errors=True)
