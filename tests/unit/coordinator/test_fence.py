"""What is remembered of shards, and of those that the store refuses."""

from __future__ import annotations

import structlog
from hypothesis import given
from hypothesis import strategies as st

from proxy.coordinator.fence import Fence
from proxy.coordinator.packing import NOTHING_KNOWN, ShardState


def state(sequence: int, incarnation: bytes = b"aaaaaaaa") -> ShardState:
    return ShardState(incarnation, sequence)


@given(st.lists(st.integers(1, 50), min_size=1))
def test_replies_may_be_read_in_another_order_than_they_were_made(sequences: list[int]) -> None:
    fence = Fence()
    for sequence in sequences:
        fence.answered(0, state(sequence))
    assert fence.newest(0) == state(max(sequences))
    assert fence.newest(1) == NOTHING_KNOWN


def test_what_was_unfenced_goes_on_from_a_higher_sequence_under_another_incarnation() -> None:
    fence = Fence()
    fence.answered(0, state(5))
    fence.answered(0, state(9, b"bbbbbbbb"))
    fence.answered(0, state(6))
    assert fence.states() == {0: state(9, b"bbbbbbbb")}


def test_a_shard_that_is_refused_is_told_of_once_until_it_answers_again() -> None:
    fence = Fence()
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            assert "shard 2 of the coordinator's store is fenced: gone; find out" in fence.refused(2, "gone")
        assert fence.fenced == {2: "gone"}
        fence.answered(1, state(1))
        assert fence.fenced
        fence.answered(2, state(1))
        fence.answered(2, state(2))
    assert [entry["event"] for entry in logged] == ["shard_fenced", "shard_unfenced"]
    assert not fence.fenced
