"""Rules for docs/decisions and the layout that no linter checks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("proxy", "pipeline", "scripts", "benchmarks", "tests")
MOST_LINES = 500


def test_files_stay_small() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }
    assert len(lengths) > 100
    assert {name for name, lines in lengths.items() if lines > MOST_LINES} == set()


def test_the_map_of_the_jobs_is_complete() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = page.partition("\n## Rooms\n")[2].partition("\n## ")[0].splitlines()
    named = [name for row in rows if row.startswith("| `") for name in re.findall("`(.+?)`", row.split("|")[1])]
    there = [
        path.relative_to(ROOT).as_posix() + "/" * path.is_dir()
        for path in (ROOT / "pipeline").iterdir()
        if (path.suffix == ".py" and not path.name.startswith("__")) or (path / "__init__.py").exists()
    ]
    assert len(there) > 10
    assert sorted(named) == sorted(there), "each folder and module once, in the second table of docs/architecture.md"
