"""The sticky choice among equals: a client keeps its candidate, and clients spread over all of them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.sticky import sticky_choice


@settings(deadline=None)
@given(st.text(max_size=20), st.lists(st.integers(0, 1000), min_size=1, max_size=20, unique=True))
def test_a_choice_moves_only_when_its_candidate_is_lost(client, candidates):
    chosen = sticky_choice(client, tuple(candidates))
    assert chosen in candidates
    assert sticky_choice(client, tuple(reversed(candidates))) == chosen
    for lost in candidates:
        left = tuple(candidate for candidate in candidates if candidate != lost)
        if left and lost != chosen:
            assert sticky_choice(client, left) == chosen


def test_clients_spread_over_the_candidates():
    chosen = [sticky_choice(f"10.0.0.{number}\0app", (1, 2, 3)) for number in range(600)]
    assert all(120 < chosen.count(candidate) < 280 for candidate in (1, 2, 3))
