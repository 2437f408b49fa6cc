"""A shard that went back is fenced, and one that did not is not."""

from __future__ import annotations

import pytest

from proxy.coordinator.fence import Fence
from proxy.coordinator.interface import CoordinatorUnavailable, ShardFenced
from proxy.coordinator.packing import NO_INCARNATION, ShardState

NOTHING = ShardState(NO_INCARNATION, 0)


def state(sequence: int, incarnation: bytes = b"aaaaaaaa") -> ShardState:
    return ShardState(incarnation, sequence)


def see(fence: Fence, *states: ShardState, shard: int = 0) -> None:
    for one in states:
        fence.after(shard, fence.before(shard), one)


def test_a_shard_that_grows_is_fine() -> None:
    see(Fence(), NOTHING, NOTHING, state(1), state(1), state(5))


@pytest.mark.parametrize("later", [state(4), state(6, b"bbbbbbbb"), NOTHING])
def test_a_shard_that_went_back_is_fenced_for_ever(later: ShardState) -> None:
    fence = Fence()
    see(fence, state(5))
    with pytest.raises(ShardFenced, match=r"shard 0 .* restart this proxy"):
        see(fence, later)
    with pytest.raises(ShardFenced):
        fence.before(0)
    see(fence, state(1), shard=1)


def test_replies_may_be_read_in_another_order_than_they_were_made() -> None:
    fence = Fence()
    see(fence, state(3))
    slow, quick = fence.before(0), fence.before(0)
    fence.after(0, quick, state(5))
    fence.after(0, slow, state(4))
    with pytest.raises(ShardFenced):
        see(fence, state(4))


def test_the_first_reply_may_be_from_before_the_first_write() -> None:
    fence = Fence()
    reader, writer = fence.before(0), fence.before(0)
    fence.after(0, writer, state(1))
    fence.after(0, reader, NOTHING)
    with pytest.raises(ShardFenced):
        see(fence, NOTHING)


def test_two_stores_that_answer_at_the_same_time_are_noticed() -> None:
    fence = Fence()
    first, second = fence.before(0), fence.before(0)
    fence.after(0, first, state(1))
    with pytest.raises(ShardFenced, match="two stores"):
        fence.after(0, second, state(2, b"bbbbbbbb"))


def test_a_reply_that_was_under_way_when_the_fence_went_up_is_not_believed() -> None:
    fence = Fence()
    see(fence, state(3))
    known = fence.before(0)
    with pytest.raises(ShardFenced):
        fence.after(0, known, state(2))
    with pytest.raises(CoordinatorUnavailable):
        fence.after(0, known, state(4))
