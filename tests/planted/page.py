"""The page of planted bugs: which quick tests notice each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.planted.bugs import BUGS
from tests.planted.plant import ROOT, Bug

PAGE = ROOT / "docs" / "planted-bugs.md"
TESTS_NAMED = 2
"""Tests that a row names at most."""
_INTRODUCTION = """# Planted bugs

Tests are worth their time if they notice bugs. `python -m tests.planted` plants each of these bugs in a copy of the
repository, runs the quick tests of that part, and names the tests that fail. It ends with an error if no test fails.

Each bug is a mistake that would cost users something, and that looks harmless in a review. A test holds this page to
the list of bugs in [`tests/planted/bugs.py`](../tests/planted/bugs.py). `--write` writes the rows of the bugs that were
planted.

The tests of the column "quick" run in `make test`. `make test-all` runs them, too, so it notices each of the bugs. A
row names the first tests that failed, two at most.

"""
_HEAD = "| bug | file | quick | full |\n|---|---|---|---|\n"
_ROW = re.compile(r"^\| (?P<bug>[^|]+) \| `(?P<file>[^`]+)` \| (?P<tests>[^|]+) \| yes \|$", re.MULTILINE)


def rows_of(page: str) -> dict[str, tuple[str, list[str]]]:
    """Return the file and the tests of each row, by the bug's name."""
    return {row["bug"]: (row["file"], re.findall("`([^`]+)`", row["tests"])) for row in _ROW.finditer(page)}


def written(page: str, noticed: Mapping[str, Sequence[str]]) -> str:
    """Return the page with new rows for the bugs that were noticed, by their names; the other rows stay."""
    before = {name: tests for name, (_, tests) in rows_of(page).items()}
    tests = before | {name: _named(failed) for name, failed in noticed.items()}
    return _INTRODUCTION + _HEAD + "".join(_row(bug, tests[bug.name]) for bug in BUGS if bug.name in tests)


def _named(failed: Sequence[str]) -> list[str]:
    """Return the tests without their parameters, each once."""
    names = (test.removeprefix("tests/").partition("[")[0] for test in failed)
    return list(dict.fromkeys(names))[:TESTS_NAMED]


def _row(bug: Bug, tests: Sequence[str]) -> str:
    return f"| {bug.name} | `{bug.file}` | {', '.join(f'`{test}`' for test in tests)} | yes |\n"
