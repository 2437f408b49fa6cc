"""The newest entries stay, whatever is noted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.process.newest import Newest


@given(st.lists(st.integers(0, 6), max_size=20), st.integers(1, 5))
def test_the_entries_that_were_noted_last_stay(keys: list[int], most: int) -> None:
    newest: Newest[int, int] = Newest(most)
    for number, key in enumerate(keys):
        newest.note(key, number)
    last = {key: number for number, key in enumerate(keys)}
    expected = sorted(last, key=lambda key: last[key])[-most:]
    assert list(newest.items()) == [(key, last[key]) for key in expected]
