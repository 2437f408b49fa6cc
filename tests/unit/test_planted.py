"""The table of planted bugs fits the code: each bug can still be planted, in one place, and its tests exist."""

from __future__ import annotations

import pytest

from tests.planted.bugs import BUGS
from tests.planted.page import PAGE, rows_of, written
from tests.planted.plant import ROOT, Bug
from tests.tiers import FULL_ONLY, TESTS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_can_be_planted(bug: Bug) -> None:
    right = (ROOT / bug.file).read_text()
    assert bug.planted_in(right) != right
    assert [path for path in bug.tests if not (ROOT / path).exists()] == []


def test_names_tell_bugs_apart() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30


def test_the_page_names_each_bug_and_quick_tests_that_exist() -> None:
    rows = rows_of(PAGE.read_text())
    assert {name: file for name, (file, _) in rows.items()} == {bug.name: bug.file for bug in BUGS}
    for _, tests in rows.values():
        assert tests
        for test in tests:
            path, _, name = test.partition("::")
            assert f"def {name.rpartition('::')[2]}(" in (TESTS / path).read_text(), test
            assert not any(entry.covers(path, name) for entry in FULL_ONLY), test


def test_only_the_rows_of_the_bugs_that_were_planted_are_written_again() -> None:
    page, bug = PAGE.read_text(), BUGS[3]
    assert written(page, {}) == page
    changed = rows_of(written(page, {bug.name: ["tests/unit/test_a.py::test_b[1]", "tests/unit/test_a.py::test_b[2]"]}))
    assert changed == rows_of(page) | {bug.name: (bug.file, ["unit/test_a.py::test_b"])}
