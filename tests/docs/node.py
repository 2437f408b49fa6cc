"""Run the scripts of the pages' calculators."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def answers(script: Path, ask: str, cases: list[Any]) -> dict[str, Any]:
    """Return what the program `ask` prints, as JSON; it gets the script's path and, on its input, the cases."""
    node = shutil.which("node")
    if node is None:
        pytest.skip(f"there is no node on this machine to run {script.name}")
    done = subprocess.run(
        [node, "-e", ask, str(script)], input=json.dumps(cases), capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
