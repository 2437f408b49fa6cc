"""Plain English, as far as it can be counted: the counts of what should not be there only go down.

A number below is the most that there may be; who lowers a count lowers its number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("proxy", "pipeline", "scripts", "benchmarks", "tests")

FRAGMENTS = re.compile(r"(Of|By|As|In|Which|That|Whose|What|Those|Where|Who|Whoever|Without)\b")
"""First words of docstrings that are no sentence with a verb."""
MOST_FRAGMENTS = 15
WORDS = {
    r"tells?|told|telling": 33,
    r"anew": 2,
    r"for ever": 3,
    r"seldom": 1,
    r"whoever": 3,
    r"mends?|mended|mending": 1,
    r"beside": 1,
    r"but for": 2,
}
"""Words with a plainer one, and the most lines that may have them."""


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
    this = Path(__file__).resolve()
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob(pattern)) if path != this]


def test_docstrings_begin_with_a_sentence() -> None:
    found = [place for place, text in docstrings() if FRAGMENTS.match(text)]
    assert len(found) <= MOST_FRAGMENTS, found[-20:]


def test_plain_words() -> None:
    any_word = re.compile(rf"\b(?:{'|'.join(WORDS)})\b")
    patterns = {word: re.compile(rf"\b(?:{word})\b") for word in WORDS}
    lines = dict.fromkeys(WORDS, 0)
    for path in [*_files("*.py"), *_files("*.lua")]:
        for line in path.read_text().lower().splitlines():
            if any_word.search(line):
                for word, pattern in patterns.items():
                    lines[word] += bool(pattern.search(line))
    more = {word: f"{count} lines, at most {WORDS[word]}" for word, count in lines.items() if count > WORDS[word]}
    assert not more
