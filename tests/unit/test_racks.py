"""Whose rack a client is of, and the choice that it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.racks import client_rack, hinted_rack, sticky_choice

RACKS = ("rack-a", "rack-a-north", "rack-b")


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        (None, None),
        ("", None),
        ("app", None),
        ("diskless_rack_id=rack-a", "rack-a"),
        ("app,diskless_rack_id=rack-a", "rack-a"),
        ("app diskless_rack_id=rack-a rest", "rack-a"),
        ("app|diskless_rack_id=rack-a|source->target", "rack-a"),
        ("app,diskless_rack_id=", None),
        ("app,my_diskless_rack_id=rack-a", None),
        ("app,diskless_rack_id=rack-a,diskless_rack_id=rack-b", "rack-a"),
    ],
)
def test_the_hint_of_a_client_id(client_id, rack):
    assert hinted_rack(client_id) == rack


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        ("app", "rack-b"),
        ("app,diskless_rack_id=rack-a", "rack-a"),
        ("app,diskless_rack_id=rack-a-StreamThread-1-consumer", "rack-a"),
        ("app,diskless_rack_id=rack-a-north-StreamThread-1", "rack-a-north"),
        ("app,diskless_rack_id=rack-ab", "rack-ab"),
        ("app,diskless_rack_id=rack-c", "rack-c"),
    ],
)
def test_the_rack_of_a_client_of_a_proxy_in_rack_b(client_id, rack):
    assert client_rack(client_id, "rack-b", RACKS) == rack


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
