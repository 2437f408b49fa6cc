"""The WAL buffer ends segments early as long as its budget of PUTs allows it. Each test has an interval of a minute."""

from __future__ import annotations

import asyncio

import pytest

from proxy.diskless.wal.pace import PutBudget
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.unit.diskless.wal.buffer_doubles import BATCH, HEADER, ONE_BATCH, TOPIC, Producer, Storage, make, turns


async def settled(producer: Producer, outcomes: int) -> None:
    async with asyncio.timeout(10):
        while len(producer.outcomes) < outcomes:
            producer.notified.clear()
            await producer.notified.wait()


async def test_a_lone_batch_does_not_wait_for_the_interval() -> None:
    wal = await make(budget=PutBudget(0.0), max_underway=1)
    producer = Producer(wal)
    producer.append()
    await settled(producer, 1)
    assert producer.codes() == {0: NONE}


async def test_batches_that_come_in_one_step_share_a_segment() -> None:
    storage = Storage()
    wal = await make(storage, budget=PutBudget(0.0), max_underway=1)
    producer = Producer(wal)
    for partition in range(4):
        producer.append(partition)
    assert wal.segments_underway == 0, "nothing ends within the step"
    await settled(producer, 4)
    assert len(storage.objects) == 1


async def test_no_segment_ends_early_while_one_is_under_way() -> None:
    storage = Storage()
    storage.gated = True
    wal = await make(storage, budget=PutBudget(0.0), max_underway=1)
    producer = Producer(wal)
    producer.append()
    await turns()
    for _ in range(3):
        producer.append()
        await turns()
    assert (wal.segments_underway, wal.buffered_bytes) == (1, 3 * ONE_BATCH)
    storage.gates[0].set()
    await turns()
    assert (wal.segments_underway, wal.buffered_bytes) == (1, 0), "those that waited follow at once, together"
    storage.gates[1].set()
    await settled(producer, 4)
    assert [number for _, number, _ in producer.outcomes] == [0, 1, 2, 3]


@pytest.mark.parametrize("succeeds", [True, False])
async def test_a_failed_upload_lets_the_next_segment_go_as_well(succeeds: bool) -> None:
    storage = Storage([(5, succeeds), (0, True)])
    wal = await make(storage, budget=PutBudget(0.0), max_underway=1)
    producer = Producer(wal)
    producer.append(0)
    await turns(2)
    producer.append(1)
    await settled(producer, 2)
    assert producer.codes(0) == {0: NONE if succeeds else KAFKA_STORAGE_ERROR}
    assert producer.codes(1) == {0: NONE}


async def test_a_batch_waits_for_a_token() -> None:
    budget = PutBudget(0.0, burst=2.0)
    wal = await make(budget=budget, max_underway=1)
    producer = Producer(wal)
    for number in range(2):
        producer.append()
        await settled(producer, number + 1)
    producer.append()
    await turns(100)
    assert (len(producer.outcomes), wal.buffered_bytes) == (2, ONE_BATCH)
    budget.per_second = 1_000.0  # a token comes within a millisecond from now on; nobody has looked yet
    producer.append()
    wal.timer.look()
    await settled(producer, 4)


async def test_a_full_segment_needs_no_token() -> None:
    budget = PutBudget(0.0, burst=0.0)
    wal = await make(budget=budget, max_underway=1, max_bytes=2 * ONE_BATCH)
    producer = Producer(wal)
    producer.append()
    producer.append()
    assert wal.segments_underway == 1
    await settled(producer, 2)


async def test_a_batch_of_a_patient_topic_waits_for_others() -> None:
    wal = await make(budget=PutBudget(0.0), max_underway=1)
    outcomes: list[int] = []
    wal.append(TOPIC, 0, BATCH, HEADER, lambda outcome: outcomes.append(outcome.error_code), patience_s=120.0)
    await turns(100)
    assert wal.buffered_bytes == ONE_BATCH
    producer = Producer(wal)
    producer.append(1)
    await settled(producer, 1)
    assert outcomes == [NONE], "it goes along with one that is in a hurry"
