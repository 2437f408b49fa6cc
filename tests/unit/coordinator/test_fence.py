"""The known state of shards, and of shards that the store rejects."""

from __future__ import annotations

import structlog
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.fence import Fence
from proxy.coordinator.packing_state import NO_INCARNATION, NOTHING_KNOWN, ShardState

A, B = b"a" * 16, b"b" * 16


def state(sequence: int, incarnation: bytes = b"aaaaaaaa", life: bytes = A) -> ShardState:
    return ShardState(incarnation, sequence, life)


@given(st.lists(st.integers(1, 50), min_size=1))
def test_replies_may_be_read_in_another_order_than_they_were_made(sequences: list[int]) -> None:
    fence = Fence()
    for sequence in sequences:
        fence.answered(0, state(sequence), NOTHING_KNOWN)
    assert fence.newest(0) == state(max(sequences))
    assert fence.newest(1) == NOTHING_KNOWN


def test_an_unfenced_shard_continues_from_a_higher_sequence_under_another_incarnation() -> None:
    fence = Fence()
    fence.answered(0, state(5), NOTHING_KNOWN)
    fence.answered(0, state(9, b"bbbbbbbb"), state(5))
    fence.answered(0, state(6), state(5))
    assert fence.states() == {0: state(9, b"bbbbbbbb")}


def test_knowledge_of_one_life_is_dropped_only_after_the_store_was_asked_with_it() -> None:
    """It is the only evidence of a failover's loss; a higher sequence of another server does not disprove it."""
    fence = Fence()
    fence.learn(0, state(150))
    fence.learn(0, state(301, life=B))  # from an announcement
    assert fence.newest(0) == state(150)
    fence.answered(0, state(302, life=B), NOTHING_KNOWN)  # sent before the first was known
    assert fence.newest(0) == state(150)
    fence.answered(0, state(302, life=B), state(149))
    assert fence.newest(0) == state(150)
    fence.answered(0, state(303, life=B), state(150))
    assert fence.newest(0) == state(303, life=B)
    fence.learn(0, state(304, life=B))
    fence.answered(0, state(151), state(150))  # read late
    assert fence.newest(0) == state(304, life=B)


def test_the_store_is_asked_once_for_more_writes_of_a_life_that_was_passed_over() -> None:
    fence = Fence()
    fence.learn(0, state(150))
    for sequence in (301, 303, 302):
        fence.learn(0, state(sequence, life=B))
    fence.learn(0, state(140, life=b"c" * 16))  # no more than is known
    assert fence.passed_over() == {0: state(303, life=B)}
    asked = fence.passed_over()
    fence.learn(0, state(304, life=B))
    fence.asked(asked)
    assert fence.passed_over() == {0: state(304, life=B)}
    fence.asked(fence.passed_over())
    assert not fence.passed_over()
    fence.answered(0, state(160), state(150))
    fence.answered(0, state(170, life=B), state(149))
    assert (fence.newest(0), fence.passed_over()) == (state(160), {0: state(170, life=B)}), "of two servers, both"


def test_a_life_without_writes_is_not_missed_and_its_first_write_is_noticed() -> None:
    fence = Fence()
    fence.learn(0, state(5))
    fence.answered(0, state(5, life=B), state(5))
    assert fence.newest(0) == state(5), "a server that has these five has all, whatever came between"
    fence.learn(0, state(6, life=b"c" * 16))
    assert fence.newest(0) == state(5)
    fence.learn(0, state(6, life=B))
    assert fence.newest(0) == state(6, life=B)


def test_a_shard_without_writes_proves_nothing_about_a_life() -> None:
    fence = Fence()
    fence.answered(0, ShardState(NO_INCARNATION, 0, A), NOTHING_KNOWN)
    assert fence.newest(0) == NOTHING_KNOWN
    fence.learn(0, state(1))
    assert fence.newest(0) == state(1)


def test_a_rejected_shard_is_reported_once_until_it_answers_again() -> None:
    fence = Fence()
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            assert "shard 2 of the coordinator's store is fenced: gone; find out" in fence.refused(2, "gone")
        assert fence.fenced == {2: "gone"}
        fence.answered(1, state(1), NOTHING_KNOWN)
        assert fence.fenced
        fence.answered(2, state(1), NOTHING_KNOWN)
        fence.answered(2, state(2), state(1))
    assert [entry["event"] for entry in logged] == ["shard_fenced", "shard_unfenced"]
    assert not fence.fenced
