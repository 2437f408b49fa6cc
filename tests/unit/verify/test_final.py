"""The ends that the checker waits for its consumers to reach."""

from __future__ import annotations

import time

import pytest

from proxy.judge.operations import Isolation
from proxy.verify import final
from proxy.verify.final import Watermarks, settled_ends

PLACE, EMPTY = ("topic", 0), ("topic", 1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final, "AGAIN_SECONDS", 0.001)


def test_ends_of_committed_records_wait_for_the_markers_of_the_last_transaction() -> None:
    committed = iter([10, 10, 18])

    def ask(isolation: Isolation) -> Watermarks:
        return {PLACE: (0, 18 if isolation is Isolation.UNCOMMITTED else next(committed)), EMPTY: (3, 3)}

    ends = settled_ends(ask, time.monotonic() + 60)
    assert ends == {Isolation.UNCOMMITTED: {PLACE: 18}, Isolation.COMMITTED: {PLACE: 18}}


def test_a_transaction_that_stays_open_ends_the_wait_at_the_deadline() -> None:
    def ask(isolation: Isolation) -> Watermarks:
        return {PLACE: (0, 18 if isolation is Isolation.UNCOMMITTED else 10)}

    ends = settled_ends(ask, time.monotonic() - 1)
    assert ends == {Isolation.UNCOMMITTED: {PLACE: 18}, Isolation.COMMITTED: {PLACE: 10}}


def test_without_an_answer_there_is_nothing_to_reach() -> None:
    assert settled_ends(lambda _: None, time.monotonic() + 60) == {isolation: {} for isolation in Isolation}
