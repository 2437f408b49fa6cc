"""Plain English, as far as it can be counted: a room has none of the words below, unless `LEFT` names it.

A number in `LEFT` is the most lines that the room may have. Whoever lowers a count lowers its number, and takes a room
that is done off the list. No number is raised, and no room is added.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("proxy", "pipeline", "scripts", "benchmarks", "tests")

FRAGMENTS = re.compile(r"(Of|By|As|In|Which|That|Whose|What|Those|Where|Who|Whoever|Without)\b")
"""First words of docstrings that are no sentence with a verb."""
WORDS = re.compile(r"\b(?:tells?|told|telling|anew|for ever|seldom|whoever|mends?|mended|mending|beside|but for)\b")
"""Words with a plainer one."""
LEFT = {
    "proxy/connection": 5,
    "proxy/coordinator": 13,
    "proxy/handlers": 15,
    "proxy/producing": 1,
}
"""Rooms that still have lines with such words, with the most lines that each may have."""
LISTS = {Path(__file__).resolve(), ROOT / "tests" / "docs" / "test_plain_words.py"}
"""Files with lists of the words."""


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield file and text of every docstring, those of attributes too."""
    for path in _files("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value.value


def _files(pattern: str) -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob(pattern)) if path not in LISTS]


def room_of(path: Path) -> str:
    """Return the folder below the top one, or the top folder of a file that is in no other."""
    return "/".join(path.relative_to(ROOT).parts[:2]) if len(path.relative_to(ROOT).parts) > 2 else path.parent.name


def test_docstrings_begin_with_a_sentence() -> None:
    assert not [place for place, text in docstrings() if FRAGMENTS.match(text)]


def test_plain_words() -> None:
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for path in [*_files("*.py"), *_files("*.lua")]:
        for number, line in enumerate(path.read_text().lower().splitlines(), 1):
            if WORDS.search(line):
                lines[room_of(path)].append(f"{path.relative_to(ROOT)}:{number}")
    assert not {room: found for room, found in lines.items() if len(found) > LEFT.get(room, 0)}


def test_the_list_of_rooms_to_rewrite_has_only_rooms_that_exist() -> None:
    assert not [room for room in LEFT if not (ROOT / room).is_dir()]
