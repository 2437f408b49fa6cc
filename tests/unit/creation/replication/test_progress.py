"""The remaining work for a partition, and the places of new replicas: existing replicas never move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.brokers.states import ClassicTopic
from proxy.creation.replication.interface import Pending, replicas_digest
from proxy.creation.replication.progress import Progress, can_grow, is_made_by, partition_wishes, targets
from proxy.wire.partition_states import PartitionState

ID = b"i" * 16


def topic(*replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> ClassicTopic:
    known = {
        number: PartitionState(1, 0, nodes, nodes if isr is None else isr) for number, nodes in enumerate(replicas)
    }
    return ClassicTopic("t", ID, known)


def wish(wanted: int, made: int = 2, *exact: tuple[int, ...], first: int = 0, since_ms: int = 0) -> Pending:
    return Pending("w", "t", 0 if exact else wanted, made, since_ms, ID, exact, first)


@pytest.mark.parametrize(
    ("replicas", "isr", "progress", "missing"),
    [
        ((1, 2), (1, 2), Progress.WAITING, 1),
        ((1, 2), (1,), Progress.WAITING, 1),
        ((1, 2, 3), (1, 2), Progress.SYNCING, 1),
        ((1, 2, 3), (1, 2, 3), Progress.COMPLETE, 0),
        ((1, 2, 3, 4), (2, 1, 3, 4), Progress.COMPLETE, 0),
        ((1, 2, 3, 4), (2, 1, 3), Progress.SYNCING, 1),
        ((1,), (1,), Progress.LOWERED, 0),
    ],
)
def test_how_far_a_partition_is(
    replicas: tuple[int, ...], isr: tuple[int, ...], progress: Progress, missing: int
) -> None:
    found = partition_wishes(topic(replicas, isr=isr), [wish(3)])[0]
    assert (found.progress, found.missing) == (progress, missing)


def test_the_newest_of_wishes_for_the_same_counts() -> None:
    """The operator who added partitions reduced partition 0, and says so."""
    wishes = [wish(3, made=2), wish(3, made=1, since_ms=1)]
    for order in (wishes, wishes[::-1]):
        assert partition_wishes(topic((1,)), order)[0].progress is Progress.WAITING
    assert partition_wishes(topic((1,)), [*wishes, wish(2, made=2, since_ms=2)])[0].wanted == 3


def test_the_newest_of_exact_wishes_for_the_same_counts() -> None:
    wishes = [wish(0, 1, (1, 2)), wish(0, 1, (1, 3), since_ms=2), wish(0, 1, (1, 4), (1, 4), since_ms=1)]
    for order in (wishes, wishes[::-1]):
        found = partition_wishes(topic((1,), (1,)), order)
        assert {number: one.exact for number, one in found.items()} == {0: (1, 3), 1: (1, 4)}


def test_an_exact_wish_is_about_its_partitions_only() -> None:
    found = partition_wishes(topic((1,), (1,), (1,)), [wish(0, 1, (1, 2), first=1)])
    assert {number: one.exact for number, one in found.items()} == {1: (1, 2)}


def test_replicas_that_were_chosen_instead_of_the_exact_ones_are_kept() -> None:
    known = topic((5, 1))
    wishes = partition_wishes(known, [wish(0, 2, (1, 2, 3))])
    assert targets(known, wishes, {1: None, 2: None, 3: None}) == {0: (5, 1, 2)}
    assert targets(known, wishes, {1: None, 4: None}) == {}


def test_an_intent_knows_its_topic_by_exactly_what_was_to_be_made() -> None:
    """Others may make one of its name, with as many replicas."""
    intent = replace(wish(3), made_as=replicas_digest([(1, 2), (2, 3)]))
    assert is_made_by(intent, topic((1, 2), (2, 3)))
    for other in ([(1, 2)], [(1, 2), (2, 3), (1, 2)], [(2, 3), (1, 2)], [(2, 1), (2, 3)], [(1, 2), (2, 3, 1)]):
        assert not is_made_by(intent, topic(*other))
    assert not is_made_by(wish(3), topic((1, 2), (2, 3)))


NODES = st.integers(1, 6)
REPLICAS = st.lists(NODES, min_size=1, max_size=4, unique=True).map(tuple)


@given(
    existing=st.lists(REPLICAS, min_size=1, max_size=5),
    live=st.sets(NODES),
    factor=st.integers(1, 5),
    exact=st.lists(REPLICAS, max_size=3),
    first=st.integers(0, 3),
)
def test_nobody_loses_a_replica_and_nobody_gets_more_than_wished(
    existing: list[tuple[int, ...]],
    live: set[int],
    factor: int,
    exact: list[tuple[int, ...]],
    first: int,
) -> None:
    known = topic(*existing)
    wishes = partition_wishes(known, [wish(factor, 1), *([wish(0, 1, *exact, first=first)] if exact else [])])
    found = targets(known, wishes, {node: str(node % 3) for node in live})
    for number, replicas in found.items():
        has, one = existing[number], wishes[number]
        assert set(has) < set(replicas)
        assert len(set(replicas)) == len(replicas) <= one.wanted
        assert set(replicas) - set(has) <= live
        if one.exact is not None:
            assert set(replicas) - set(has) <= set(one.exact)
    for number, one in wishes.items():
        could = live & set(one.exact) if one.exact is not None else live
        if len(existing[number]) < one.wanted and could - set(existing[number]):
            count = min(one.wanted, len(could | set(existing[number])))
            assert len(found[number]) == count
    assert found.keys() == {number for number, one in wishes.items() if can_grow(one, live)}
