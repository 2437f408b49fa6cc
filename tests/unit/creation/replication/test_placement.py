"""The placement of replicas, compared with KIP-36's rules and, for few possibilities, with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.creation.replication.placement import place, rack_aware

Racks = Mapping[int, str | None]


def spread(loads: Iterable[int]) -> int:
    """How uneven: the smaller, the more even, for the same sum."""
    return sum(load * load for load in loads)


def load_of(replicas: Iterable[Sequence[int]], racks: Racks) -> Counter[int]:
    counted = Counter(dict.fromkeys(racks, 0))
    counted.update(node for one in replicas for node in one if node in racks)
    return counted


def racks_of(replicas: Iterable[int], racks: Racks) -> Counter[str | None]:
    return Counter(racks[node] for node in replicas if node in racks)


@st.composite
def clusters(draw: st.DrawFn, *, most: int = 12) -> dict[int, str | None]:
    nodes = draw(st.lists(st.integers(0, 30), min_size=1, max_size=most, unique=True))
    names = draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"], [None], ["a", None, ""]]))
    return {node: draw(st.sampled_from(names)) for node in nodes}


@st.composite
def worlds(draw: st.DrawFn, *, brokers: int = 12, partitions: int = 20, most_replicas: int = 5):
    """Draw brokers, existing replicas (some of them on brokers that are gone), and the wanted number of replicas."""
    racks = draw(clusters(most=brokers))
    nodes = st.sampled_from([*racks, 97, 98, 99])
    one = st.lists(nodes, max_size=most_replicas, unique=True).map(tuple)
    existing = draw(st.lists(one, min_size=1, max_size=partitions))
    return racks, existing, draw(st.integers(1, most_replicas)), draw(st.integers(0, 2**32 - 1))


@given(worlds())
def test_existing_replicas_stay_and_no_broker_has_two_replicas_of_a_partition(world) -> None:
    racks, existing, wanted, start = world
    placed = place(existing, wanted, racks, start=start)
    assert len(placed) == len(existing)
    for old, new in zip(existing, placed, strict=True):
        assert len(set(new)) == len(new)
        assert set(old) <= set(new)
        assert set(new) - set(old) <= racks.keys()
        room = len(racks.keys() - set(old))
        assert len(new) == max(len(old), min(wanted, len(old) + room))
        if len(new) == len(old):
            assert new == old


@given(worlds())
def test_replicas_cover_as_many_racks_as_possible(world) -> None:
    """KIP-36: with enough racks no rack has two replicas, with fewer each rack has one, as far as existing replicas
    allow."""
    racks, existing, wanted, start = world
    if not rack_aware(racks):
        return
    for old, new in zip(existing, place(existing, wanted, racks, start=start), strict=True):
        added = len(new) - len(old)
        all_racks, before, after = set(racks.values()), racks_of(old, racks), racks_of(new, racks)
        assert len(after) == min(len(all_racks), len(before) + added)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 24), st.integers(0, 99))
def test_racks_of_one_size_give_an_even_spread_of_replicas_and_leaders(
    racks: int, of_rack: int, wanted: int, partitions: int, start: int
) -> None:
    """KIP-36's case: every broker has the same number of replicas and of leaders, give or take one."""
    brokers = {node: f"rack-{node % racks}" for node in range(racks * of_rack)}
    placed = place([()] * partitions, wanted, brokers, start=start)
    for counted in (load_of(placed, brokers), load_of([one[:1] for one in placed], brokers)):
        assert max(counted.values()) - min(counted.values()) <= 1


@given(clusters(), st.integers(1, 12), st.integers(1, 5), st.integers(0, 99))
def test_without_racks_replicas_are_even(racks: Racks, partitions: int, wanted: int, start: int) -> None:
    placed = place([()] * partitions, wanted, dict.fromkeys(racks), start=start)
    for counted in (load_of(placed, racks), load_of([one[:1] for one in placed], racks)):
        assert max(counted.values()) - min(counted.values()) <= 1


def ways(old: Sequence[int], wanted: int, racks: Racks) -> list[tuple[int, ...]]:
    """Return all sets of replicas that keep the existing ones and cover the most racks as evenly as possible."""
    free = sorted(racks.keys() - set(old))
    added = min(max(wanted - len(old), 0), len(free))
    found = [(*old, *more) for more in combinations(free, added)]
    if rack_aware(racks):
        found = best(found, lambda one: (-len(racks_of(one, racks)), spread(racks_of(one, racks).values())))
    return found


def best(found, measure):
    least = min(map(measure, found))
    return [one for one in found if measure(one) == least]


@settings(deadline=None)
@given(worlds(brokers=5, partitions=4, most_replicas=3))
def test_no_other_way_is_more_even(world) -> None:
    """Against all ways to place the replicas, and then all ways to choose the leaders of partitions that changed."""
    racks, existing, wanted, start = world
    placed = place(existing, wanted, racks, start=start)
    possible = [ways(old, wanted, racks) for old in existing]
    for new, sets in zip(placed, possible, strict=True):
        assert set(new) in map(set, sets)
    least = min(spread(load_of(way, racks).values()) for way in product(*possible))
    assert spread(load_of(placed, racks).values()) == least
    leaders = [
        [node for node in new if node in racks] if len(new) > len(old) else list(new[:1])
        for old, new in zip(existing, placed, strict=True)
    ]
    choices = [[(node,) for node in choice] or [()] for choice in leaders]
    least = min(spread(load_of(way, racks).values()) for way in product(*choices))
    assert spread(load_of([one[:1] for one in placed], racks).values()) == least


@given(worlds())
def test_it_is_the_same_on_every_proxy_and_when_repeated(world) -> None:
    racks, existing, wanted, start = world
    placed = place(existing, wanted, racks, start=start)
    assert place(existing, wanted, dict(reversed(racks.items())), start=start) == placed
    assert place(placed, wanted, racks, start=start) == placed


@given(worlds(), st.integers(1, 5))
def test_replicas_that_were_added_one_by_one_keep_the_rules_too(world, first: int) -> None:
    """Brokers join one after the other, and placed replicas stay: as many racks as if all brokers had joined at
    once."""
    racks, existing, wanted, start = world
    some = dict(list(racks.items())[:first])
    steps = place(place(existing, wanted, some, start=start), wanted, racks, start=start)
    for old, new in zip(existing, steps, strict=True):
        assert set(old) <= set(new)
        assert len(new) >= min(wanted, len(racks))


@given(worlds(), st.dictionaries(st.sampled_from([97, 98, 99]), st.sampled_from(["a", "b", "e", None])))
def test_the_racks_of_brokers_that_are_down_count_where_a_replica_is(world, down: dict[int, str | None]) -> None:
    racks, existing, wanted, start = world
    placed = place(existing, wanted, racks, start=start, down=down)
    known = racks | {node: rack for node, rack in down.items() if rack}
    for old, new in zip(existing, placed, strict=True):
        assert set(new) - set(old) <= racks.keys()
        if rack_aware(racks):
            added, before = len(new) - len(old), racks_of(old, known)
            assert len(racks_of(new, known)) == min(len({*racks.values(), *before}), len(before) + added)


@pytest.mark.parametrize(
    ("racks", "counts"), [({1: "a", 2: "b"}, True), ({1: None, 2: ""}, False), ({1: "a", 2: None}, False)]
)
def test_racks_count_where_every_broker_has_one(racks: Racks, counts: bool) -> None:
    assert rack_aware(racks) is counts


def test_some_brokers_without_rack_are_placed_as_if_none_had_one() -> None:
    mixed: Racks = {1: "a", 2: "a", 3: "b", 4: None}
    assert place([()] * 8, 2, mixed) == place([()] * 8, 2, dict.fromkeys(mixed))


def test_a_rack_of_one_broker_has_a_replica_of_everything() -> None:
    """KIP-36: the spread over racks goes before that over brokers."""
    racks: Racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    assert all(4 in one for one in place([()] * 9, 2, racks))


def test_topics_of_one_partition_do_not_all_begin_at_one_broker() -> None:
    racks: Racks = {1: "a", 2: "b", 3: "c"}
    assert {place([()], 2, racks, start=start)[0][0] for start in range(3)} == {1, 2, 3}


def test_followers_of_one_leader_are_spread() -> None:
    """So that the partitions of a broker that dies are led by all the others."""
    racks: Racks = {node: "abc"[node % 3] for node in range(3)}
    followers = Counter(one[:2] for one in place([()] * 12, 3, racks))
    assert set(followers.values()) == {2}


def test_a_third_broker_gets_its_share_of_leaders() -> None:
    placed = place([(1, 2), (2, 1)] * 6, 3, {1: "a", 2: "b", 3: "c"})
    assert Counter(one[0] for one in placed) == {1: 4, 2: 4, 3: 4}


def test_without_brokers_all_stays() -> None:
    assert place([(1, 2), ()], 3, {}) == [(1, 2), ()]
    assert place([], 3, {1: "a"}) == []
