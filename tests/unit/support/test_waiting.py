from __future__ import annotations

import pytest

from tests.support.waiting import wait_for


def test_the_value_by_which_it_holds_is_handed_back() -> None:
    values = iter([None, [], ["there"]])
    assert wait_for(lambda: next(values), "something") == ["there"]


def test_the_missing_condition_is_named_when_time_is_up() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s: something"):
        wait_for(lambda: False, "something", 0.0)
