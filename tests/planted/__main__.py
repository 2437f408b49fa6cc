"""Plant bugs, one at a time, and say which tests notice: `python -m tests.planted [words of a bug's name…]`.

Ends with 1 if a bug is not noticed. `--write` writes the rows of these bugs into docs/planted-bugs.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.bugs import BUGS
from tests.planted.page import PAGE, written
from tests.planted.plant import Bug, copy_of_the_repository, failed_tests, planted


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="plant only the bugs whose name or file contains one of these")
    parser.add_argument("--write", action="store_true", help="write the rows of docs/planted-bugs.md")
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if not options.words or any(word in bug.name + bug.file for word in options.words)]
    with (
        tempfile.TemporaryDirectory() as directory,
        copy_of_the_repository(Path(directory) / "copy") as copy,
    ):
        if failing := failed_tests(copy, sorted({path for bug in chosen for path in bug.tests}), most=0):
            print(f"these tests fail without any bug: {', '.join(failing)}")
            return 1
        noticed = _plant_each(chosen, copy)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), noticed))
    print(f"{len(noticed)} of {len(chosen)} bugs were noticed")
    return 0 if len(noticed) == len(chosen) else 1


def _plant_each(chosen: list[Bug], copy: Path) -> dict[str, list[str]]:
    """Plant the bugs one after the other; return the tests that failed, by the name of each bug that was noticed."""
    noticed: dict[str, list[str]] = {}
    for number, bug in enumerate(chosen, 1):
        began_s = time.monotonic()
        with planted(bug, copy):
            failed = failed_tests(copy, bug.tests)
        if failed:
            noticed[bug.name] = failed
        took_s = time.monotonic() - began_s
        tests = ", ".join(failed) or "NOT NOTICED"
        print(f"[{number}/{len(chosen)}] {bug.name}: {tests} ({took_s:.0f} s)", flush=True)
    return noticed


if __name__ == "__main__":
    sys.exit(main())
