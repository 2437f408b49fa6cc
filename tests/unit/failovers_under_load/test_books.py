"""The books of a run of failovers find the problems that they exist for."""

from __future__ import annotations

import pytest

from tests.failovers_under_load.books import Books

ONE, TWO = b"1" * 16, b"2" * 16


@pytest.fixture
def books() -> Books:
    books = Books({0: 0})
    books.tried(ONE, 0, 3)
    books.answered(ONE, 10, two_primaries=False)
    books.tried(TWO, 0, 5)
    return books


@pytest.mark.parametrize(("reported", "problems"), [(2, 1), (3, 0), (8, 0), (9, 1)])
def test_a_count_below_the_loss_or_above_all_tried_offsets_is_a_problem(
    books: Books, reported: int, problems: int
) -> None:
    books.judge({0: {}}, {0: reported}, {0})
    assert len(books.problems) == problems
    assert books.lost == 3


def test_a_loss_of_a_shard_that_is_not_fenced_is_a_problem(books: Books) -> None:
    books.judge({0: {TWO: 20}}, {0: 3}, set())
    assert len(books.problems) == 1


def test_a_batch_at_another_offset_is_a_problem(books: Books) -> None:
    books.judge({0: {ONE: 11, TWO: 20}}, {}, set())
    assert len(books.problems) == 1


@pytest.mark.parametrize("two_primaries", [False, True])
@pytest.mark.parametrize("unfences", [0, 1])
def test_a_repeated_offset_is_a_problem_unless_there_are_two_primaries(
    books: Books, two_primaries: bool, unfences: int
) -> None:
    books.unfences = unfences
    books.answered(TWO, 12, two_primaries=two_primaries)
    assert len(books.problems) == (0 if two_primaries and not unfences else 1)
    assert books.twice_meanwhile == (1 if two_primaries and not unfences else 0)
