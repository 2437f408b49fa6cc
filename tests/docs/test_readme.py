"""README stays a page that can be read in two minutes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import ROOT

MAX_LINES = 120
README = (ROOT / "README.md").read_text()


def test_it_is_short_and_has_one_picture() -> None:
    assert len(README.splitlines()) <= MAX_LINES
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert picture.endswith(".svg")


@pytest.mark.parametrize("name", ["overview", "record", "requests"])
def test_a_drawing_is_self_contained_and_follows_the_readers_theme(name: str) -> None:
    text = (ROOT / "docs" / "images" / f"{name}.svg").read_text()
    drawing = ElementTree.fromstring(text)
    assert [drawing.find(f"{{http://www.w3.org/2000/svg}}{name}") is not None for name in ("title", "desc")] == [
        True
    ] * 2
    assert "prefers-color-scheme: dark" in text
    assert not [url for url in re.findall(r"https?://[^\"'\s)]+", text) if url != "http://www.w3.org/2000/svg"]


def test_it_has_the_facts_for_a_readers_decision() -> None:
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert headings[:5] == ["What it saves", "What it is not for", "Status", "What it needs", "Try it"]
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|", README, re.MULTILINE)
    assert rows == ["Decide", "Try", "Connect", "Run"]
