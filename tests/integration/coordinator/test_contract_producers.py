"""The contract of every coordinator for idempotent producers, with the model in memory and the real one."""

from __future__ import annotations

import asyncio
import os

from proxy.coordinator.interface import BatchAnswer, FindRequest
from tests.integration.coordinator.contract import (
    INVALID_EPOCH,
    INVALID_RECORD,
    LAST_SEQUENCE,
    OUT_OF_ORDER,
    TOPIC,
    commit,
    described,
    idempotent,
    plain,
    reported,
)

# Producer rules: Kafka 4.x ProducerAppendInfo and ProducerStateEntry


async def test_first_sequence_in_a_log_that_never_held_records_is_zero(coordinator) -> None:
    """KAFKA-15591."""
    assert reported(await commit(coordinator, idempotent(5))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(0, 5), idempotent(5))) == [(0, 0, False), (0, 5, False)]


async def test_first_sequence_in_a_log_that_held_records_is_any(coordinator) -> None:
    await commit(coordinator, plain())
    assert reported(await commit(coordinator, idempotent(5))) == [(0, 1, False)]
    assert reported(await commit(coordinator, idempotent(0, 5))) == [(OUT_OF_ORDER, -1, False)]


async def test_a_gap_and_an_overlap_are_out_of_order(coordinator) -> None:
    await commit(coordinator, idempotent(0, 10))
    for sequence in (11, 9, 1):
        assert reported(await commit(coordinator, idempotent(sequence, 2))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(10))) == [(0, 10, False)]


async def test_producers_and_partitions_do_not_mix(coordinator) -> None:
    ids = [0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
    answers = await commit(coordinator, *[idempotent(0, 1, producer_id=producer_id) for producer_id in ids])
    assert reported(answers) == [(0, offset, False) for offset in range(6)]
    assert reported(await commit(coordinator, idempotent(0, 1, producer_id=2**53 + 1))) == [(0, 3, True)]
    assert reported(await commit(coordinator, idempotent(0), partition=1)) == [(0, 0, False)]


async def test_wrap_from_the_last_sequence_to_zero(coordinator) -> None:
    await commit(coordinator, plain())
    await commit(coordinator, idempotent(LAST_SEQUENCE - 1, 2))
    assert reported(await commit(coordinator, idempotent(1))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(0, 2))) == [(0, 3, False)]
    assert reported(await commit(coordinator, idempotent(LAST_SEQUENCE - 1, 2))) == [(0, 1, True)]
    assert reported(await commit(coordinator, idempotent(2))) == [(0, 5, False)]


async def test_a_batch_that_straddles_the_wrap(coordinator) -> None:
    await commit(coordinator, plain())
    straddling = idempotent(LAST_SEQUENCE - 1, 5)  # …646, …647, 0, 1, 2
    assert reported(await commit(coordinator, straddling)) == [(0, 1, False)]
    assert reported(await commit(coordinator, straddling)) == [(0, 1, True)]
    assert reported(await commit(coordinator, idempotent(2))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(3))) == [(0, 6, False)]


async def test_a_higher_epoch_starts_at_zero(coordinator) -> None:
    await commit(coordinator, idempotent(0, 4, epoch=1))
    assert reported(await commit(coordinator, idempotent(4, epoch=2))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(4, epoch=1))) == [(0, 4, False)]
    assert reported(await commit(coordinator, idempotent(0, 4, epoch=2))) == [(0, 5, False)]
    assert reported(await commit(coordinator, idempotent(0, 4, epoch=2))) == [(0, 5, True)]
    assert reported(await commit(coordinator, idempotent(4, epoch=2))) == [(0, 9, False)]


async def test_a_lower_epoch_is_fenced_also_for_duplicates(coordinator) -> None:
    await commit(coordinator, idempotent(0, epoch=1), idempotent(0, epoch=2))
    for sequence in (0, 1):
        answers = await commit(coordinator, idempotent(sequence, epoch=1))
        assert reported(answers) == [(INVALID_EPOCH, -1, False)]


async def test_duplicates_of_all_remembered_batches(coordinator) -> None:
    first = await commit(coordinator, *[idempotent(sequence) for sequence in range(5)])
    for sequence in range(5):
        (again,) = await commit(coordinator, idempotent(sequence))
        assert again == first[sequence]._replace(duplicate=True, append_time_ms=1_000), "as brokers: its own time"
    assert (await described(coordinator)).high_watermark == 5


async def test_a_forgotten_batch_is_out_of_order(coordinator) -> None:
    await commit(coordinator, *[idempotent(sequence) for sequence in range(6)])
    assert reported(await commit(coordinator, idempotent(0))) == [(OUT_OF_ORDER, -1, False)]
    assert reported(await commit(coordinator, idempotent(1))) == [(0, 1, True)]


async def test_more_batches_are_remembered_where_configured(make) -> None:
    """KIP-1269."""
    coordinator = make(producer_batches_remembered=7)
    await coordinator.create_logs(TOPIC, [0])
    await commit(coordinator, *[idempotent(sequence) for sequence in range(8)])
    assert reported(await commit(coordinator, idempotent(0), idempotent(1))) == [
        (OUT_OF_ORDER, -1, False),
        (0, 1, True),
    ]


async def test_a_batch_that_only_overlaps_a_remembered_one_is_no_duplicate(coordinator) -> None:
    await commit(coordinator, idempotent(0, 4), idempotent(4, 4))
    assert reported(await commit(coordinator, idempotent(0, 8), idempotent(4, 2))) == [(OUT_OF_ORDER, -1, False)] * 2


async def test_a_duplicate_within_one_run(coordinator) -> None:
    answers = await commit(coordinator, idempotent(0, 3), idempotent(0, 3), idempotent(3))
    assert reported(answers) == [(0, 0, False), (0, 0, True), (0, 3, False)]
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 0, 1_000)])
    assert [(row.base_offset, row.position) for row in found.rows] == [(0, 1), (3, 201)]


async def test_an_early_batch_is_judged_again(coordinator) -> None:
    """After a move to another proxy, a producer's batch may arrive there before the first proxy has committed."""
    await commit(coordinator, idempotent(0))
    early = os.urandom(16)
    batches = idempotent(6, 5), plain(), idempotent(11)
    first = await commit(coordinator, *batches, segment=early)
    assert reported(first) == [(OUT_OF_ORDER, -1, False), (0, 1, False), (OUT_OF_ORDER, -1, False)]
    assert [one.early for one in first] == [True, False, True]
    assert await commit(coordinator, *batches, segment=early) == first
    assert await described(coordinator) == (0, 2, 200, 2, 2)
    await commit(coordinator, idempotent(0, 5, producer_id=8), idempotent(1, 5))
    assert reported(await commit(coordinator, *batches, segment=early)) == [
        (0, 12, False),
        (0, 1, False),
        (0, 17, False),
    ]
    assert reported(await commit(coordinator, *batches, segment=early)) == [
        (0, 12, False),
        (0, 1, False),
        (0, 17, False),
    ]
    assert await described(coordinator) == (0, 18, 600, 5, 18)
    (found,) = await coordinator.find([FindRequest(TOPIC, 0, 12, 10_000)])
    assert [(row.base_offset, row.last_offset, row.segment, row.position) for row in found.rows] == [
        (12, 16, early, 1),
        (17, 17, early, 201),
    ]
    assert reported(await commit(coordinator, *batches[::2])) == [(0, 12, True), (0, 17, True)]


async def test_a_producer_that_was_early_in_an_empty_log_still_waits_for_its_first_batch(coordinator) -> None:
    segment = os.urandom(16)
    (early,) = await commit(coordinator, idempotent(1), segment=segment)
    await commit(coordinator, plain())
    assert await commit(coordinator, idempotent(1), segment=segment) == (early,)
    await commit(coordinator, idempotent(0))
    assert reported(await commit(coordinator, idempotent(1), segment=segment)) == [(0, 2, False)]


async def test_only_a_possible_batch_is_early(coordinator) -> None:
    await commit(coordinator, idempotent(0, 10, epoch=1))
    for sequence, epoch, early in (
        (11, 1, True),
        (9, 1, False),
        (1, 1, False),
        (10 + 2**30, 1, False),
        (9 + 2**30, 1, True),
        (1, 2, True),
        (2**31 - 1, 2, False),
    ):
        (answer,) = await commit(coordinator, idempotent(sequence, epoch=epoch))
        assert (answer.error_code, answer.early) == (OUT_OF_ORDER, early), (sequence, epoch)
    (fenced,) = await commit(coordinator, idempotent(10, epoch=0))
    assert (fenced.error_code, fenced.early) == (INVALID_EPOCH, False)


async def test_an_early_batch_is_rejected_once_its_segment_is_tombstoned(coordinator) -> None:
    """Its producer may send it again, in another segment."""
    segment = os.urandom(16)
    (first,) = await commit(coordinator, idempotent(1), segment=segment)
    assert first.early
    assert await coordinator.tombstone([segment]) == [segment]
    await commit(coordinator, idempotent(0))
    assert await commit(coordinator, idempotent(1), segment=segment) == (BatchAnswer(56, -1, -1, False),)


async def test_expired_producers_are_removed_even_without_writes(make) -> None:
    coordinator = make(producer_id_expiration_ms=1_000)
    await coordinator.create_logs(TOPIC, range(4))
    for partition in range(3):
        await commit(coordinator, *[idempotent(0, producer_id=10 * n) for n in range(150)], partition=partition)
    assert await coordinator.forget_producers([(TOPIC, 9), (TOPIC, 3)]) == 0
    await asyncio.sleep(1.01)
    await commit(coordinator, idempotent(5, producer_id=7), partition=1)
    logs = [(TOPIC, partition) for partition in (0, 1, 3)]
    assert await coordinator.forget_producers(logs) == 300
    assert await coordinator.forget_producers(logs) == 0
    assert reported(await commit(coordinator, idempotent(6, producer_id=7), partition=1)) == [(0, 151, False)]
    assert await coordinator.forget_producers([(TOPIC, 2)]) == 150


async def test_an_expired_producer_is_unknown(make) -> None:
    coordinator = make(producer_id_expiration_ms=1)
    await coordinator.create_logs(TOPIC, [0])
    await commit(coordinator, idempotent(0, epoch=5))
    await asyncio.sleep(0.005)
    assert reported(await commit(coordinator, idempotent(70, epoch=3))) == [(0, 1, False)]


async def test_batches_that_no_producer_sends_are_rejected(coordinator) -> None:
    answers = await commit(coordinator, idempotent(-1), idempotent(0, epoch=-1), idempotent(0))
    assert reported(answers) == [(INVALID_RECORD, -1, False), (INVALID_EPOCH, -1, False), (0, 0, False)]
