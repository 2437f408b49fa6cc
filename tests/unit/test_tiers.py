"""The table of tiers names tests that exist, and says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.tiers import FULL_ONLY, NAMES_NO_TEST, TESTS, FullOnly, unused

KILLS = FullOnly("faults/kills", "long")
OLD = FullOnly("clients/test_all.py", "other versions", r"\[old-")
A_KILL = {"faults/kills/test_a.py": ["test_x"]}


@pytest.mark.parametrize(
    ("entry", "path", "name", "covered"),
    [
        (KILLS, "faults/kills/test_a.py", "test_x", True),
        (KILLS, "faults/kills_of_others/test_a.py", "test_x", False),
        (FullOnly("faults/test_a.py", "long"), "faults/test_a.py", "test_x[1]", True),
        (OLD, "clients/test_all.py", "test_reads[old-1]", True),
        (OLD, "clients/test_all.py", "test_reads[new-1]", False),
        (OLD, "clients/test_other.py", "test_reads[old-1]", False),
    ],
)
def test_an_entry_covers_what_it_names(entry: FullOnly, path: str, name: str, covered: bool) -> None:
    assert entry.covers(path, name) is covered


@pytest.mark.parametrize(
    ("tests", "unused_ones"),
    [
        (A_KILL | {"clients/test_all.py": ["test_reads[new-1]", "test_reads[old-1]"]}, []),
        (A_KILL | {"clients/test_all.py": ["test_reads[new-1]"]}, [OLD]),
        # Files that were not collected prove nothing about an entry.
        (A_KILL, []),
    ],
)
def test_an_entry_that_names_no_test_of_its_files_is_found(
    tests: Mapping[str, Sequence[str]], unused_ones: Sequence[FullOnly]
) -> None:
    assert unused([KILLS, OLD], tests) == unused_ones


@pytest.mark.parametrize("entry", FULL_ONLY, ids=lambda entry: entry.path + entry.names)
def test_every_entry_names_files_that_exist_and_a_reason(entry: FullOnly) -> None:
    place = TESTS / entry.path
    assert place.is_file() or list(place.rglob("test_*.py"))
    assert entry.reason


def test_no_entry_stands_twice() -> None:
    assert len({(entry.path, entry.names) for entry in FULL_ONLY}) == len(FULL_ONLY)


def test_every_entry_names_a_test(pytestconfig: pytest.Config) -> None:
    """Check the files that this run has collected; the gate collects all of them."""
    assert pytestconfig.stash[NAMES_NO_TEST] == []
