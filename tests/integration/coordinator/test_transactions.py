"""When a batch of a transaction is accepted, what ends the transaction, and what readers see of it.

The same tests run against the model, a store, and a store that is a view of a journal. The offsets that a test gives
for the shadow are those of real markers in the partition's placeholder topic.
"""

from __future__ import annotations

import os

import pytest

from proxy.coordinator.interface import (
    Coordinator,
    DeleteRequest,
    FindRequest,
    LogAnswer,
    PartitionRun,
    ProposedBatch,
    RetainRequest,
)
from proxy.coordinator.interface_transactions import (
    AbortedTransaction,
    EnlistAnswer,
    Enlistment,
    Marker,
    MarkersApplied,
    MarkersRead,
    ShadowPosition,
)
from proxy.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
)
from tests.integration.coordinator.contract import TOPIC

PRODUCER, OTHER = 70, 2**62 + 1
COMMIT, ABORT = True, False


def batch(sequence: int, *, epoch: int = 0, version: int = 1, since: int = -1, producer: int = PRODUCER):
    """Return a batch of two records."""
    return ProposedBatch(100, 2, 1_000, producer, epoch, sequence, version, since)


async def send(coordinator: Coordinator, *batches: ProposedBatch, segment: bytes = b"") -> list[tuple[int, bool]]:
    """Return error code and whether it is early, for each batch."""
    (answer,) = await coordinator.commit(segment or os.urandom(16), [PartitionRun(TOPIC, 0, 1, batches)])
    assert answer.error_code == NONE
    return [(one.error_code, one.early) for one in answer.batches]


async def enlist(coordinator: Coordinator, since: int, *, epoch: int = 0, producer: int = PRODUCER) -> EnlistAnswer:
    (answer,) = await coordinator.transactions.enlist([Enlistment(TOPIC, 0, producer, epoch, since)])
    return answer


async def end(
    coordinator: Coordinator, offset: int, committed: bool, *, epoch: int = 0, producer: int = PRODUCER
) -> int:
    """Apply the marker at an offset of the shadow; return the number of transactions that it has ended."""
    ((position),) = await coordinator.transactions.positions([(TOPIC, 0)])
    assert position is not None
    marker = Marker(offset, producer, epoch, 0, committed, 2_000)
    part = MarkersRead(TOPIC, 0, position.next_offset, offset + 1, 1, (marker,))
    (answer,) = await coordinator.transactions.apply_markers([part])
    assert (answer.error_code, answer.next_offset) == (NONE, offset + 1)
    return answer.ended


async def read(coordinator: Coordinator, offset: int = 0) -> LogAnswer:
    (answer,) = await coordinator.find([FindRequest(TOPIC, 0, offset, 1 << 40)])
    return answer


OK = (NONE, False)


async def test_a_transaction_that_is_committed(coordinator: Coordinator) -> None:
    assert await enlist(coordinator, 0) is EnlistAnswer.ENLISTED
    assert await send(coordinator, batch(0), batch(2)) == [OK, OK]
    found = await read(coordinator)
    assert (found.high_watermark, found.last_stable_offset) == (4, 0)
    assert await end(coordinator, 0, COMMIT) == 1
    found = await read(coordinator)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (5, 5, ())
    assert [(row.base_offset, row.last_offset, row.length) for row in found.rows] == [(0, 3, 200), (4, 4, 0)]


async def test_a_transaction_that_is_aborted(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await send(coordinator, batch(0, version=0, producer=OTHER))
    await end(coordinator, 0, ABORT)
    aborted = AbortedTransaction(last_offset=4, first_offset=0, producer_id=PRODUCER, last_stable_offset=5)
    assert (await read(coordinator)).aborted == (aborted,)
    assert (await read(coordinator, 3)).aborted == (aborted,)
    assert (await read(coordinator, 5)).aborted == ()


async def test_a_transactional_batch_without_an_enlistment(coordinator: Coordinator) -> None:
    assert await send(coordinator, batch(0)) == [(INVALID_TXN_STATE, False)]
    assert await send(coordinator, batch(0, version=2)) == [(INVALID_TXN_STATE, False)]
    assert (await read(coordinator)).high_watermark == 0


async def test_a_batch_without_transaction_while_one_is_open(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    assert await send(coordinator, batch(0), batch(2, version=0)) == [OK, (INVALID_TXN_STATE, False)]
    assert await send(coordinator, batch(2, version=0)) == [(INVALID_TXN_STATE, False)]


async def test_a_zombie_that_enlists_late(coordinator: Coordinator) -> None:
    """The marker of the transaction was applied before the zombie's enlistment of it arrives."""
    assert await end(coordinator, 0, ABORT) == 0
    assert await enlist(coordinator, 0) is EnlistAnswer.ENDED
    assert await send(coordinator, batch(0)) == [(INVALID_TXN_STATE, False)]


async def test_a_zombie_with_a_lower_epoch_enlists(coordinator: Coordinator) -> None:
    await end(coordinator, 0, ABORT, epoch=1)
    assert await enlist(coordinator, 1, epoch=0) is EnlistAnswer.FENCED


async def test_a_zombie_that_commits_late(coordinator: Coordinator) -> None:
    """It enlisted in time, but its batches come after the marker."""
    await enlist(coordinator, 0)
    await end(coordinator, 0, ABORT)
    assert await send(coordinator, batch(0)) == [(INVALID_TXN_STATE, False)]


async def test_a_zombie_that_was_fenced_produces(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    assert await end(coordinator, 0, ABORT, epoch=1) == 1
    assert await send(coordinator, batch(2)) == [(INVALID_PRODUCER_EPOCH, False)]
    assert await send(coordinator, batch(2, version=0)) == [(INVALID_PRODUCER_EPOCH, False)]


async def test_a_zombie_of_version_2_produces_late(coordinator: Coordinator) -> None:
    """The marker of a transaction of version 2 has a higher epoch than its data."""
    await end(coordinator, 0, COMMIT, epoch=1)
    assert await send(coordinator, batch(0, version=2, since=1)) == [(INVALID_PRODUCER_EPOCH, False)]


@pytest.mark.parametrize(("version", "error"), [(1, NOT_ENOUGH_REPLICAS), (2, CONCURRENT_TRANSACTIONS)])
async def test_a_batch_waits_for_the_marker_before_it(coordinator: Coordinator, version: int, error: int) -> None:
    """A new epoch waits until the old epoch's transaction has ended. The same commit is accepted then."""
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    new, segment = batch(0, epoch=1, version=version, since=1), os.urandom(16)
    assert await enlist(coordinator, 1, epoch=1) is EnlistAnswer.WAIT
    assert await send(coordinator, new, segment=segment) == [(error, True)]
    await end(coordinator, 0, ABORT, epoch=1)
    if version == 1:
        assert await enlist(coordinator, 1, epoch=1) is EnlistAnswer.ENLISTED
    assert await send(coordinator, new, segment=segment) == [OK]
    assert (await read(coordinator)).last_stable_offset == 3


async def test_a_batch_of_version_2_waits_for_markers_that_were_not_read(coordinator: Coordinator) -> None:
    """The open transaction may be the one before: its marker of the same epoch is still to be read."""
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    segment = os.urandom(16)
    assert await send(coordinator, batch(2, version=2, since=1), segment=segment) == [(CONCURRENT_TRANSACTIONS, True)]
    await end(coordinator, 0, COMMIT)
    assert await send(coordinator, batch(2, version=2, since=1), segment=segment) == [OK]
    assert (await read(coordinator)).last_stable_offset == 3


async def test_from_version_1_to_2_between_two_transactions(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await end(coordinator, 0, COMMIT)
    assert await send(coordinator, batch(2, version=2, since=1)) == [OK]
    assert await end(coordinator, 1, COMMIT, epoch=1) == 1
    assert await send(coordinator, batch(0, epoch=1, version=2, since=2)) == [OK]
    assert await end(coordinator, 2, ABORT, epoch=2) == 1
    found = await read(coordinator)
    assert [(row.base_offset, row.length) for row in found.rows] == [
        (0, 100), (2, 0), (3, 100), (5, 0), (6, 100), (8, 0)
    ]  # fmt: skip
    assert [(one.first_offset, one.last_offset) for one in found.aborted] == [(6, 8)]


async def test_a_transaction_without_data_then_one_with_data(coordinator: Coordinator) -> None:
    """The marker of the first one is read after the second one has begun, and must not end it."""
    assert await enlist(coordinator, 0) is EnlistAnswer.ENLISTED
    assert await enlist(coordinator, 1) is EnlistAnswer.WAIT
    assert await end(coordinator, 0, COMMIT) == 0
    assert await enlist(coordinator, 1) is EnlistAnswer.ENLISTED
    assert await send(coordinator, batch(0)) == [OK]
    assert await end(coordinator, 1, COMMIT) == 1


async def test_the_marker_of_a_transaction_without_data_is_read_late(coordinator: Coordinator) -> None:
    """Version 2 does not wait for it, as its own marker has a higher epoch; a marker before `since` ends nothing."""
    assert await send(coordinator, batch(0, version=2, since=1)) == [OK]
    assert await end(coordinator, 0, ABORT) == 0
    assert (await read(coordinator)).last_stable_offset == 0
    assert await end(coordinator, 1, COMMIT) == 1


async def test_an_epoch_bump_begins_with_the_first_sequence(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0), batch(2))
    await end(coordinator, 0, ABORT, epoch=1)
    late = (OUT_OF_ORDER_SEQUENCE_NUMBER, True)
    assert await send(coordinator, batch(4, epoch=1, version=2, since=1)) == [late]
    assert await send(coordinator, batch(0, epoch=1, version=2, since=1)) == [OK]


async def test_the_last_epochs_of_a_producer_id(coordinator: Coordinator) -> None:
    """The marker that fences epoch 32,766 has the largest epoch that there is. A session after that has another ID."""
    assert await enlist(coordinator, 0, epoch=32_766) is EnlistAnswer.ENLISTED
    assert await send(coordinator, batch(0, epoch=32_766)) == [OK]
    assert await end(coordinator, 0, ABORT, epoch=32_767) == 1
    assert await send(coordinator, batch(2, epoch=32_766)) == [(INVALID_PRODUCER_EPOCH, False)]
    assert await enlist(coordinator, 1, epoch=32_766) is EnlistAnswer.FENCED
    assert await enlist(coordinator, 1, producer=OTHER) is EnlistAnswer.ENLISTED
    assert await send(coordinator, batch(0, producer=OTHER)) == [OK]
    assert await end(coordinator, 1, COMMIT, producer=OTHER) == 1
    assert (await read(coordinator)).last_stable_offset == 6


async def test_version_2_begins_with_the_first_sequence_in_any_log(coordinator: Coordinator) -> None:
    """KAFKA-18202; without a transaction, and in version 1, an unknown producer may begin anywhere (KAFKA-15591)."""
    await send(coordinator, ProposedBatch(1, 1, 0, -1, -1, -1))
    assert await send(coordinator, batch(4, version=2, since=0)) == [(OUT_OF_ORDER_SEQUENCE_NUMBER, True)]
    await enlist(coordinator, 0, producer=OTHER)
    assert await send(coordinator, batch(4, producer=OTHER)) == [OK]


async def test_a_retry_is_a_duplicate_after_the_end(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    first = batch(0)
    await send(coordinator, first)
    await end(coordinator, 0, COMMIT)
    (answer,) = await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, 0, 1, (first,))])
    assert [(one.error_code, one.base_offset, one.duplicate) for one in answer.batches] == [(NONE, 0, True)]


async def test_the_sequences_of_an_earlier_transaction_are_no_retry(coordinator: Coordinator) -> None:
    """librdkafka uses them again for other records, if it aborts while a batch that was appended has to be retried."""
    unknown = (UNKNOWN_PRODUCER_ID, False)
    await enlist(coordinator, 0)
    assert await send(coordinator, batch(0)) == [OK]
    await end(coordinator, 0, ABORT)
    await enlist(coordinator, 1)
    assert await send(coordinator, batch(0)) == [unknown]
    assert await send(coordinator, batch(2)) == [OK]
    assert await send(coordinator, batch(0), batch(2)) == [unknown, OK]
    assert (await read(coordinator)).high_watermark == 5


async def test_markers_are_applied_once(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    part = MarkersRead(TOPIC, 0, 0, 3, 7, (Marker(1, PRODUCER, 0, 0, COMMIT, 2_000),))
    for ended in (1, 0):
        assert await coordinator.transactions.apply_markers([part]) == [MarkersApplied(NONE, 3, ended)]
    assert await coordinator.transactions.positions([(TOPIC, 0), (TOPIC, 9)]) == [ShadowPosition(7, 3), None]
    assert (await read(coordinator)).high_watermark == 3


async def test_the_last_stable_offset_is_of_the_oldest_open_transaction(coordinator: Coordinator) -> None:
    for producer in (PRODUCER, OTHER):
        await enlist(coordinator, 0, producer=producer)
        await send(coordinator, batch(0, producer=producer))
    assert (await read(coordinator)).last_stable_offset == 0
    await end(coordinator, 0, ABORT)
    found = await read(coordinator)
    assert (found.last_stable_offset, found.aborted[0].last_stable_offset) == (2, 2)
    await end(coordinator, 1, COMMIT, producer=OTHER)
    assert (await read(coordinator)).last_stable_offset == 6


async def test_an_open_transaction_in_one_log_of_a_commit_leaves_the_others_alone(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    plain = ProposedBatch(1, 1, 0, -1, -1, -1)
    await coordinator.commit(os.urandom(16), [PartitionRun(TOPIC, index, 1, (plain,)) for index in range(4)])
    found = await coordinator.find([FindRequest(TOPIC, index, 0, 1) for index in range(4)])
    assert [(one.high_watermark, one.last_stable_offset) for one in found] == [(3, 0), (1, 1), (1, 1), (1, 1)]


async def test_a_last_stable_offset_within_a_row(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0, version=0, producer=OTHER), batch(0))
    found = await read(coordinator)
    assert ([row.last_offset for row in found.rows], found.last_stable_offset) == ([3], 2)


async def test_retention_keeps_open_transactions(coordinator: Coordinator) -> None:
    await send(coordinator, batch(0, version=0, producer=OTHER))
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    request = RetainRequest(TOPIC, 0, 1, 0, False)
    assert [one.log_start_offset for one in await coordinator.retain([request])] == [2]
    await end(coordinator, 0, ABORT)
    assert [one.log_start_offset for one in await coordinator.retain([request])] == [5]
    assert (await read(coordinator, 5)).aborted == ()


async def test_delete_records_goes_past_an_open_transaction(coordinator: Coordinator) -> None:
    """The last stable offset is never before the log start, and stays there until the transaction has ended."""
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await coordinator.delete_records([DeleteRequest(TOPIC, 0, -1)])
    await send(coordinator, batch(0, version=0, producer=OTHER))
    found = await read(coordinator, 2)
    assert (found.log_start_offset, found.high_watermark, found.last_stable_offset) == (2, 4, 2)
    assert await send(coordinator, batch(2, version=0)) == [(INVALID_TXN_STATE, False)]
    await end(coordinator, 0, COMMIT)
    assert (await read(coordinator, 2)).last_stable_offset == 5


async def test_a_producer_with_an_open_transaction_does_not_expire(make) -> None:
    coordinator = make(producer_id_expiration_ms=1)
    await coordinator.create_logs(TOPIC, [0])
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await send(coordinator, batch(0, version=0, producer=OTHER))
    while await coordinator.forget_producers([(TOPIC, 0)]) == 0:
        pass
    assert [one.producer_id for one in await coordinator.producers(TOPIC, 0)] == [PRODUCER]
    assert await send(coordinator, batch(8)) == [(OUT_OF_ORDER_SEQUENCE_NUMBER, True)]
    assert await send(coordinator, batch(2)) == [OK]


async def test_a_truncated_shadow_is_read_again(coordinator: Coordinator) -> None:
    """After an unclean election, the next transaction's marker has an offset that an earlier marker had."""
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await end(coordinator, 5, COMMIT)
    await enlist(coordinator, 6)
    await send(coordinator, batch(2))
    (answer,) = await coordinator.transactions.apply_markers([MarkersRead(TOPIC, 0, 6, 3, 8, ())])
    assert answer == MarkersApplied(NONE, 3, 0)
    assert await coordinator.transactions.positions([(TOPIC, 0)]) == [ShadowPosition(8, 3)]
    assert await end(coordinator, 3, ABORT) == 1
    assert await enlist(coordinator, 4) is EnlistAnswer.ENLISTED
    assert await send(coordinator, batch(4)) == [OK]
    assert [(one.first_offset, one.last_offset) for one in (await read(coordinator)).aborted] == [(3, 5)]


async def test_a_truncation_at_another_position_does_nothing(coordinator: Coordinator) -> None:
    await end(coordinator, 5, COMMIT)
    part = MarkersRead(TOPIC, 0, 5, 3, 8, ())
    assert await coordinator.transactions.apply_markers([part]) == [MarkersApplied(NONE, 6, 0)]
    assert await enlist(coordinator, 4) is EnlistAnswer.ENDED


async def test_aborted_transactions_are_counted(coordinator: Coordinator) -> None:
    for producer in (PRODUCER, OTHER):
        await enlist(coordinator, 0, producer=producer)
        await send(coordinator, batch(0, producer=producer))
    markers = Marker(0, PRODUCER, 0, 0, COMMIT, 2_000), Marker(1, OTHER, 0, 0, ABORT, 2_000)
    part = MarkersRead(TOPIC, 0, 0, 2, 1, markers)
    assert await coordinator.transactions.apply_markers([part]) == [MarkersApplied(NONE, 2, 2, 1)]


async def test_open_transactions_are_listed(coordinator: Coordinator) -> None:
    assert await coordinator.transactions.open_transactions() == []
    for producer in (PRODUCER, OTHER):
        await enlist(coordinator, 0, producer=producer)
        await send(coordinator, batch(0, producer=producer))
    await enlist(coordinator, 0, producer=PRODUCER + 1)
    found = await coordinator.transactions.open_transactions()
    assert sorted((one.producer_id, one.producer_epoch, one.first_offset, one.markers_from) for one in found) == [
        (PRODUCER, 0, 0, 0), (OTHER, 0, 2, 0)
    ]  # fmt: skip
    assert all(one.since_ms > 0 and one[:2] == (TOPIC, 0) for one in found)
    await end(coordinator, 0, COMMIT)
    (left,) = await coordinator.transactions.open_transactions()
    assert left.producer_id == OTHER


async def test_a_deleted_log_leaves_no_transaction(coordinator: Coordinator) -> None:
    await enlist(coordinator, 0)
    await send(coordinator, batch(0))
    await end(coordinator, 0, ABORT)
    await enlist(coordinator, 1)
    await send(coordinator, batch(2))
    await coordinator.delete_logs(TOPIC, [0])
    assert await enlist(coordinator, 1) is EnlistAnswer.GONE
    await coordinator.create_logs(TOPIC, [0])
    assert await coordinator.transactions.positions([(TOPIC, 0)]) == [ShadowPosition(-1, 0)]
    assert await coordinator.transactions.followed(1 << 40) == []
    assert await send(coordinator, batch(0, version=0)) == [OK]
    assert (await read(coordinator)).last_stable_offset == 2
