"""Plant a bug in a copy of the repository, and run tests there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = (".venv", ".servers")
"""Folders of what is installed; copies link to them."""
_OUTCOME = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake that somebody could make, as a replacement of text."""

    name: str
    """Says what goes wrong, in words that fit a table."""
    file: str
    right: str
    """Text that the file contains exactly once."""
    wrong: str
    tests: tuple[str, ...]
    """Paths of quick tests to run, those that should notice."""

    def planted_in(self, text: str) -> str:
        """Return the text of the file with the bug. Raises ValueError if the text is not there exactly once."""
        if text.count(self.right) != 1:
            raise ValueError(f"{self.file} has the text of {self.name!r} {text.count(self.right)} times, not once")
        return text.replace(self.right, self.wrong)


@contextmanager
def copy_of_the_repository(to: Path) -> Iterator[Path]:
    """Copy all files that git knows, changed or not, and remove the copy at the end."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    for folder in SHARED:
        (to / folder).symlink_to((ROOT / folder).resolve())
    try:
        yield to
    finally:
        shutil.rmtree(to, ignore_errors=True)


@contextmanager
def planted(bug: Bug, copy: Path) -> Iterator[None]:
    """Break one file of the copy, and repair it at the end."""
    path = copy / bug.file
    right = path.read_text()
    path.write_text(bug.planted_in(right))
    try:
        yield
    finally:
        path.write_text(right)


def failed_tests(copy: Path, paths: Sequence[str], *, most: int = 3) -> list[str]:
    """Run quick tests of the copy until `most` of them fail, 0 for all; return the names of those that failed.

    A test that takes longer than a minute has failed, as a bug may make it wait forever.

    Raises RuntimeError if pytest itself could not do its work, for example if a path does not exist.
    """
    command = [sys.executable, "-m", "pytest", "-q", "--tier", "quick", f"--maxfail={most}"]
    command += ["-p", "no:cacheprovider", "--timeout=60"]
    done = subprocess.run(
        [*command, *paths],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode > 2:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return _OUTCOME.findall(done.stdout)
