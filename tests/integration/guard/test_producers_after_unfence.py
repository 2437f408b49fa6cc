"""Idempotent producers after `unfence`: surviving batches are duplicates, and a producer that is ahead continues
once."""

from __future__ import annotations

import os

import pytest

from proxy.coordinator.interface import BatchAnswer, PartitionRun, ProposedBatch
from proxy.coordinator.redis import RedisCoordinator
from proxy.protocol.errors import NONE, OUT_OF_ORDER_SEQUENCE_NUMBER

TOPIC = bytes(range(16))
GAP = 100
LAST_SEQUENCE = 2**31 - 1


async def send(coordinator: RedisCoordinator, sequence: int, *, epoch: int = 0, producer_id: int = 5) -> BatchAnswer:
    """Commit a batch of two records as its own segment."""
    batch = ProposedBatch(10, 2, 1_000, producer_id, epoch, sequence)
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (batch,))])
    assert answer.error_code == NONE
    return answer.batches[0]


async def accepted(coordinator: RedisCoordinator, sequence: int, **changes: int) -> int:
    answer = await send(coordinator, sequence, **changes)
    assert (answer.error_code, answer.duplicate) == (NONE, False)
    return answer.base_offset


async def out_of_order(coordinator: RedisCoordinator, sequence: int, **changes: int) -> None:
    assert (await send(coordinator, sequence, **changes)).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
async def coordinator(start_proxy) -> RedisCoordinator:
    coordinator: RedisCoordinator = (await start_proxy()).coordinator
    await coordinator.create_logs(TOPIC, [0])
    return coordinator


async def lose_and_unfence(coordinator: RedisCoordinator, losses, copy: int) -> None:
    losses.restore(copy)
    await coordinator.shards.touch([0, 1])
    (shard,) = coordinator.fence.fenced
    await coordinator.shards.unfence(shard, GAP, [])
    await coordinator.shards.touch([shard])
    assert not coordinator.fence.fenced


async def test_a_retry_of_a_batch_that_survived_is_a_duplicate(coordinator, losses) -> None:
    survived = [await accepted(coordinator, sequence) for sequence in (0, 2)]
    copy = losses.copy()
    await accepted(coordinator, 4)
    await lose_and_unfence(coordinator, losses, copy)
    for sequence, offset in zip((2, 0), reversed(survived), strict=True):
        answer = await send(coordinator, sequence)
        assert (answer.error_code, answer.base_offset, answer.duplicate) == (NONE, offset, True)


async def test_a_retry_of_a_batch_that_was_lost_is_stored(coordinator, losses) -> None:
    await accepted(coordinator, 0)
    copy = losses.copy()
    lost = await accepted(coordinator, 2)
    await lose_and_unfence(coordinator, losses, copy)
    again = await accepted(coordinator, 2)
    assert again > lost + 1
    answer = await send(coordinator, 2)
    assert (answer.base_offset, answer.duplicate) == (again, True)
    await out_of_order(coordinator, 6)


@pytest.mark.parametrize("begin", [0, LAST_SEQUENCE - 3])
async def test_a_batch_ahead_of_the_surviving_ones_is_accepted_once(coordinator, losses, begin: int) -> None:
    await accepted(coordinator, 0, producer_id=7)
    sequences = [(begin + 2 * number) % 2**31 for number in range(6)]
    await accepted(coordinator, sequences[0])
    copy = losses.copy()
    lost = [await accepted(coordinator, sequence) for sequence in sequences[1:3]]
    await out_of_order(coordinator, sequences[5])
    await lose_and_unfence(coordinator, losses, copy)
    again = await accepted(coordinator, sequences[3])
    assert again > lost[-1] + 1
    await out_of_order(coordinator, sequences[5])
    assert await accepted(coordinator, sequences[4]) == again + 2


async def test_a_batch_behind_the_surviving_ones_stays_out_of_order(coordinator, losses) -> None:
    for sequence in range(0, 20, 2):
        await accepted(coordinator, sequence)
    copy = losses.copy()
    await accepted(coordinator, 20)
    await lose_and_unfence(coordinator, losses, copy)
    await out_of_order(coordinator, 0)
    await accepted(coordinator, 22)


async def test_an_epoch_whose_first_batches_are_lost_continues(coordinator, losses) -> None:
    await accepted(coordinator, 0)
    copy = losses.copy()
    await accepted(coordinator, 0, epoch=1)
    await lose_and_unfence(coordinator, losses, copy)
    await accepted(coordinator, 2, epoch=1)
    await out_of_order(coordinator, 8, epoch=1)
    await out_of_order(coordinator, 2, epoch=2)


async def test_recreated_partitions_know_no_producer(coordinator, losses) -> None:
    await accepted(coordinator, 0)
    copy = losses.copy()
    await accepted(coordinator, 2)
    await lose_and_unfence(coordinator, losses, copy)
    await coordinator.delete_logs(TOPIC, [0])
    await coordinator.create_logs(TOPIC, [0])
    await accepted(coordinator, 0)
    await out_of_order(coordinator, 4)
