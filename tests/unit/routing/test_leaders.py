"""The rules of `leader_choice` for racks that exist, are unknown, are empty, are lost, or are back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.routing.leaders import LeaderChoice, Turns
from proxy.wire.partition_leaders import HashedLeaders, ReplicaLeaders, SoleLeader

LIVE = (1, 2, 3, 4, 5, 6)
IN_RACK = (2, 5, 6)
CHOICES = ("sticky", "round_robin", "partition_hash", "replica")


def named(leaders):
    """Return every node that leads some partition; its replicas must all be nodes."""
    if isinstance(leaders, SoleLeader):
        return {leaders.leader}
    if isinstance(leaders, HashedLeaders):
        return {leaders.leader_of(topic, partition) for topic in ("one", "two") for partition in range(300)}
    return {leaders.leader_of(frozenset(LIVE)), leaders.preferred} - {None}


@pytest.mark.parametrize("choice", CHOICES)
@settings(deadline=None)
@given(
    live=st.sets(st.integers(0, 20), max_size=8),
    in_rack=st.sets(st.integers(0, 20), max_size=8),
    clients=st.lists(st.text(max_size=4), min_size=1, max_size=4),
)
def test_a_leader_is_a_live_broker_of_the_rack_where_there_is_one(choice, live, in_rack, clients):
    rule, local = LeaderChoice(choice), tuple(sorted(live & in_rack))
    for client in clients:
        leaders = rule.leaders(client, tuple(sorted(live)), local, metadata=True)
        if not live:
            assert leaders is None
        else:
            assert named(leaders) <= set(local or live)
            assert choice == "replica" or named(leaders)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_rack_that_is_lost_and_comes_back(choice):
    rule = LeaderChoice(choice)
    assert named(rule.leaders("client", LIVE, IN_RACK, metadata=True)) <= set(IN_RACK)
    left = tuple(node for node in LIVE if node not in IN_RACK)
    away = rule.leaders("client", left, (), metadata=True)
    assert named(away) <= set(left)
    if choice == "replica":
        assert away.leader_of(frozenset(LIVE)) is None, "the true leader stays where the rack has none"
    assert named(rule.leaders("client", LIVE, IN_RACK, metadata=True)) <= set(IN_RACK)


@pytest.mark.parametrize("choice", ["sticky", "partition_hash", "replica"])
@settings(deadline=None)
@given(metadata=st.booleans(), client=st.text(max_size=5))
def test_the_same_on_every_proxy_and_in_every_response(choice, metadata, client):
    first = LeaderChoice(choice).leaders(client, LIVE, IN_RACK, metadata=True)
    again = LeaderChoice(choice).leaders(client, LIVE, IN_RACK, metadata=metadata)
    assert named(first) == named(again)


def test_round_robin_moves_with_every_metadata_response():
    rule = LeaderChoice("round_robin")
    leaders = [rule.leaders(f"client-{n % 2}", LIVE, IN_RACK, metadata=True).leader for n in range(7)]
    assert leaders == [2, 5, 6, 2, 5, 6, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_describe_topic_partitions_agrees_with_the_clients_last_metadata(asked):
    rule, last = LeaderChoice("round_robin"), {}
    for client, metadata in asked:
        leader = rule.leaders(client, LIVE, IN_RACK, metadata=metadata).leader
        if metadata:
            last[client] = leader
        elif client in last:
            assert leader == last[client]
        else:
            assert leader == rule.leaders(client, LIVE, IN_RACK, metadata=False).leader


def test_a_client_whose_broker_died_gets_another_without_moving_the_turn():
    turns = Turns()
    assert turns.next("client", (1, 2)) == 1
    assert turns.last("client", (2, 3)) == 2
    assert turns.last("client", (2, 3)) == 2
    assert turns.next("client", (2, 3)) == 2


def test_turns_are_bounded():
    turns = Turns(max_remembered=2)
    for client in "abc":
        turns.next(client, (1, 2, 3))
    assert turns.last("b", (1, 2, 3)) == 2
    assert turns.last("c", (1, 2, 3)) == 3
    assert turns.last("a", (1, 2, 3)) == 1, "forgotten, so whose turn it is"


def test_partitions_spread_and_only_those_of_a_lost_broker_move():
    rule = LeaderChoice("partition_hash")
    whole, less = (rule.leaders("any", LIVE, rack, metadata=True) for rack in (IN_RACK, (2, 6)))
    partitions = [(f"topic-{number % 7}", number) for number in range(600)]
    counts = [sum(whole.leader_of(*each) == node for each in partitions) for node in IN_RACK]
    assert all(count > 120 for count in counts)
    assert all(less.leader_of(*each) == whole.leader_of(*each) for each in partitions if whole.leader_of(*each) != 5)


def test_replica_leaders_are_replicas_of_the_rack():
    leaders = LeaderChoice("replica").leaders("client", LIVE, IN_RACK, metadata=True)
    assert leaders.leader_of(frozenset({1, 5})) == 5
    assert leaders.leader_of(frozenset({1, 3})) is None
    assert leaders.leader_of(frozenset({2, 5, 6})) == leaders.order[0]
    assert isinstance(leaders, ReplicaLeaders)
    assert leaders.preferred in IN_RACK


RACKS = ("a", "b", "a", None, "b", "b")
"""Racks of LIVE."""


@pytest.mark.parametrize("choice", ["sticky", "partition_hash"])
@settings(deadline=None)
@given(
    racks=st.lists(st.sampled_from(("a", "b", "c", "", None)), min_size=6, max_size=6),
    rack=st.sampled_from("abc"),
    client=st.text(max_size=4),
)
def test_replicas_are_the_leader_and_one_broker_of_each_other_rack(choice, racks, rack, client):
    in_rack = tuple(node for node, of in zip(LIVE, racks, strict=True) if of == rack)
    leaders = LeaderChoice(choice).leaders(client, LIVE, in_rack, metadata=True, racks=tuple(racks))
    rack_of = dict(zip(LIVE, racks, strict=True))
    for leader in named(leaders):
        others = [rack_of[node] for node in leaders.others_of(leader)]
        assert sorted(others) == sorted({of for of in racks if of} - {rack_of[leader]})
        assert 1 + len(others) <= leaders.replica_count


def test_the_brokers_of_other_racks_stay_as_long_as_they_live():
    for lost in (2, 5, 6):
        before = LeaderChoice("sticky").leaders("client", LIVE, (1, 3), metadata=True, racks=RACKS)
        live = tuple(node for node in LIVE if node != lost)
        racks = tuple(of for node, of in zip(LIVE, RACKS, strict=True) if node != lost)
        after = LeaderChoice("sticky").leaders("client", live, (1, 3), metadata=True, racks=racks)
        assert after == before or before.others == (lost,)


def test_round_robin_names_no_other_replica():
    assert LeaderChoice("round_robin").leaders("client", LIVE, IN_RACK, metadata=True, racks=RACKS).others == ()
