"""Plant bugs, one at a time, and say which tests notice: `python -m tests.planted [words of a bug's name…]`.

Ends with 1 if a bug is not noticed. `--write` writes the table of docs/planted-bugs.md (a whole run only).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.bugs import BUGS
from tests.planted.plant import ROOT, Bug, copy_of_the_repository, failed_tests, planted

PAGE = ROOT / "docs" / "planted-bugs.md"
_INTRODUCTION = """# Planted bugs

Tests are worth their time if they notice bugs. `python -m tests.planted` plants each of these bugs in a copy of the
repository, runs the quick tests of that part, and names the tests that fail. It ends with an error if no test fails.
All of these tests are in the quick tier, so `make test` and `make test-all` both notice every bug in the table.
The command wrote this page. It stops after three failed tests for each bug.

| bug | file | quick tests that notice it |
|---|---|---|
"""


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="plant only the bugs whose name or file contains one of these")
    parser.add_argument("--write", action="store_true", help="write docs/planted-bugs.md")
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if not options.words or any(word in bug.name + bug.file for word in options.words)]
    if options.write and chosen != list(BUGS):
        parser.error("--write needs a run of all bugs")
    rows, unnoticed = [], 0
    with (
        tempfile.TemporaryDirectory() as directory,
        copy_of_the_repository(Path(directory) / "copy") as copy,
    ):
        if failing := failed_tests(copy, sorted({path for bug in chosen for path in bug.tests}), most=0):
            print(f"these tests fail without any bug: {', '.join(failing)}")
            return 1
        for number, bug in enumerate(chosen, 1):
            began_s = time.monotonic()
            with planted(bug, copy):
                failed = failed_tests(copy, bug.tests)
            unnoticed += not failed
            took_s = time.monotonic() - began_s
            print(
                f"[{number}/{len(chosen)}] {bug.name}: {', '.join(failed) or 'NOT NOTICED'} ({took_s:.0f} s)",
                flush=True,
            )
            rows.append(_row(bug, failed))
    if options.write and not unnoticed:
        PAGE.write_text(_INTRODUCTION + "".join(rows))
    print(f"{len(chosen) - unnoticed} of {len(chosen)} bugs were noticed")
    return 1 if unnoticed else 0


def _row(bug: Bug, failed: list[str]) -> str:
    names = ", ".join(f"`{test.removeprefix('tests/').partition('[')[0]}`" for test in dict.fromkeys(failed))
    return f"| {bug.name} | `{bug.file}` | {names or '**none**'} |\n"


if __name__ == "__main__":
    sys.exit(main())
