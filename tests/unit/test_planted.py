"""The table of planted bugs fits the code: each bug can still be planted, in one place, and its tests exist."""

from __future__ import annotations

import pytest

from tests.planted.bugs import BUGS
from tests.planted.plant import ROOT, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_can_be_planted(bug: Bug) -> None:
    right = (ROOT / bug.file).read_text()
    assert bug.planted_in(right) != right
    assert [path for path in bug.tests if not (ROOT / path).exists()] == []


def test_names_tell_bugs_apart() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30
