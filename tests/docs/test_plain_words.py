"""Pages are in plain English, as far as it can be counted: no page has these words, unless it defines one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import INLINE_CODE, ROOT, pages, read

WORDS = re.compile(
    r"\b(anew|beside|but for|for ever|goes by|kin|mend(?:s|ed|ing)?|seldom|so long as|so many|tells?|"
    r"telling|told|whichever|who(?:so)?ever(?:'s)?|shadows?)\b",
    re.IGNORECASE,
)
TARGET = re.compile(r"\]\([^)]*\)")
DEFINED = {"docs/glossary.md": {"shadow"}, "docs/architecture.md": {"shadow"}}
"""Words that a page explains or names."""
PLAIN = [page for page in pages() if not page.is_relative_to(ROOT / "docs" / "decisions")]
"""Decision records stay as they were written."""


def private_words(page: Path) -> set[str]:
    """Return the words of the running text that have a plainer one."""
    text = TARGET.sub("]", INLINE_CODE.sub("", read(page)[0]))
    return {word.lower() for word in WORDS.findall(text)}


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_plain_words(page: Path) -> None:
    assert private_words(page) <= DEFINED.get(page.relative_to(ROOT).as_posix(), set())
