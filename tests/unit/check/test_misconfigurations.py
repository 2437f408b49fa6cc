"""The page of misconfigurations is the list that the tests produce."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.misconfigurations import MISCONFIGURATIONS, Misconfiguration, table

PAGE = Path(__file__).parents[3] / "docs" / "troubleshooting.md"


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(), "write what `python -m tests.support.misconfigurations` prints into it"


def test_names_differ() -> None:
    assert len({one.name for one in MISCONFIGURATIONS}) == len(MISCONFIGURATIONS) >= 20


@pytest.mark.parametrize("one", MISCONFIGURATIONS, ids=lambda one: one.name)
def test_the_line_is_what_its_pattern_finds(one: Misconfiguration) -> None:
    assert one.pattern.fullmatch(
        one.line.replace("127.0.0.1:", "127.0.0.1:1").replace("/etc/diskless-proxy/", "/tmp/x/")
    )
    assert "; " in one.line
