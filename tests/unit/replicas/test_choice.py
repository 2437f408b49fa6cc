"""The choice of the replica to read: the rules of KIP-392 against a model, and the reasons of leader reads."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.replicas.choice import LeaderReason, near_replica
from proxy.wire.partition_states import PartitionState

nodes = st.sets(st.integers(1, 6)).map(frozenset)


def state(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionState:
    return PartitionState(leader, 3, replicas, isr)


@given(replicas=nodes, isr=nodes, near=nodes, down=nodes, shunned=nodes, behind=nodes, leader=st.integers(-1, 6))
def test_a_replica_is_near_alive_in_sync_and_not_shunned_or_the_reason_says_what_it_is_not(
    replicas, isr, near, down, shunned, behind, leader
):
    isr, down = isr & replicas, down - near
    known = state(leader, tuple(replicas), tuple(isr))
    choice = near_replica(known, near, shunned, "client", "topic", 0, down=down, behind=behind)
    can_be_read = (isr & near) - shunned
    assert (choice.broker is None) is (not can_be_read)
    assert (choice.broker is None) is (choice.reason is not None)
    if can_be_read:
        assert choice.broker in can_be_read
        assert choice.broker == leader or leader not in can_be_read
        assert choice.broker == leader or choice.broker not in behind or can_be_read <= behind
    elif isr & near:
        assert choice.reason is LeaderReason.SHUNNED
    elif replicas & near:
        assert choice.reason is LeaderReason.NOT_IN_ISR
    elif replicas & down:
        assert choice.reason is LeaderReason.NOT_ALIVE
    else:
        assert choice.reason is LeaderReason.NO_NEAR_REPLICA


def test_equals_are_spread_over_and_each_client_keeps_its_own():
    equals = state(9, (9, 1, 2, 3), (3, 2, 1, 9))
    near = frozenset({1, 2, 3})

    def chosen(client: str, partition: int) -> int | None:
        return near_replica(equals, near, (), client, "topic", partition).broker

    of_clients = Counter(chosen(f"client-{number}", 0) for number in range(300))
    of_partitions = Counter(chosen("client", number) for number in range(300))
    for spread in (of_clients, of_partitions):
        assert spread.keys() == {1, 2, 3}
        assert min(spread.values()) > 60
    assert chosen("client-7", 5) == chosen("client-7", 5)


@pytest.mark.parametrize("client", [f"client-{number}" for number in range(30)])
def test_only_clients_of_a_lost_replica_move(client):
    equals = state(9, (9, 1, 2, 3), (9, 1, 2, 3))
    before = near_replica(equals, frozenset({1, 2, 3}), (), client, "topic", 0).broker
    after = near_replica(equals, frozenset({1, 2, 3}), {3}, client, "topic", 0).broker
    assert before == after or before == 3
