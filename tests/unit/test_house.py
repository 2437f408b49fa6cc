"""Rules for docs/decisions and the layout that no linter checks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = {"proxy": 400, "pipeline": 400, "scripts": 400, "benchmarks": 400, "tests": 500}
"""Lines that a file of each folder may have."""


def test_files_stay_small() -> None:
    lengths = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for folder in MOST_LINES
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert len(lengths) > 100
    assert {str(path): lines for path, lines in lengths.items() if lines > MOST_LINES[path.parts[0]]} == {}


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
