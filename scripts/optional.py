"""What set-up goes on without where it can't be had: made beside its place, and moved there when it is whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from jars import SERVERS, say


def make_once(name: str, wanted: str, make: Callable[[Path], str], *, what: str, skipped: str) -> None:
    """Have `.servers/<name>` made from `wanted`, unless it is. `make` fills a directory, and returns why it can't.

    A line says so, with what is `skipped` for want of `what`.
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
