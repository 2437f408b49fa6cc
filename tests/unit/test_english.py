"""Plain English, as far as it can be counted: no file has the words below."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("proxy", "pipeline", "scripts", "benchmarks", "tests")

FRAGMENTS = re.compile(r"(Of|By|As|In|Which|That|Whose|What|Those|Where|Who|Whoever|Without)\b")
"""First words of docstrings that are no sentence with a verb."""
WORDS = re.compile(
    r"\b(?:tells?(?!\()|told|telling|anew|for ever|seldom|whoever|mends?|mended|mending|beside|but for)\b"
)
"""Words with a plainer one; `tell()` is a method of files."""
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


def test_docstrings_begin_with_a_sentence() -> None:
    assert not [place for place, text in docstrings() if FRAGMENTS.match(text)]


def test_plain_words() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [*_files("*.py"), *_files("*.lua")]
        for number, line in enumerate(path.read_text().lower().splitlines(), 1)
        if WORDS.search(line)
    ]


def test_texts_for_operators_have_plain_words() -> None:
    """Check the admin page, the chart, the alerts, the dashboard and the example settings: no word is left there."""
    suffixes = {".yaml", ".yml", ".tpl", ".txt", ".json", ".js", ".html", ".css", ".service", ".timer", ".env", ".xml"}
    paths = [path for top in ("deploy", "proxy/admin/page", ".github") for path in sorted((ROOT / top).rglob("*"))]
    texts = [path for path in paths if path.suffix in suffixes and path.is_file()]
    assert len(texts) > 60
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts
        for number, line in enumerate(path.read_text().lower().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert not found
