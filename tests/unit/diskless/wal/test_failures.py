"""A producer's failed batch comes before the batches that the producer sent after it, however the log began."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.diskless.wal import failures as module
from proxy.diskless.wal.failures import FailedBatches
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from tests.unit.diskless.wal.buffer_doubles import Coordinator, Producer, Storage, make, turns

TOPIC = b"t" * 16


async def after_other_records(storage: Storage) -> tuple[Producer, Storage]:
    """A producer that the log does not know; the log is not empty."""
    wal = await make(storage=storage, coordinator=Coordinator())
    other = Producer(wal)
    other.append()
    await wal.drain()
    assert other.codes() == {0: NONE}
    return Producer(wal), storage


async def test_a_first_batch_that_failed_is_stored_before_the_next_one() -> None:
    producer, storage = await after_other_records(Storage())
    storage.plans = [(0, False)]
    producer.append(idempotent=True)
    await producer.wal.drain()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR}
    producer.append(idempotent=True)  # was in flight when the first one failed
    await producer.wal.drain()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR, 1: KAFKA_STORAGE_ERROR}
    producer.appended[0] = 0
    for _ in range(2):
        producer.append(idempotent=True)
    await producer.wal.drain()
    retried = [outcome for _, _, outcome in producer.outcomes[2:]]
    assert [(outcome.error_code, outcome.base_offset) for outcome in retried] == [(NONE, 1), (NONE, 2)]


async def test_batches_of_other_producers_and_partitions_pass() -> None:
    producer, storage = await after_other_records(Storage())
    storage.plans = [(0, False)]
    producer.append(idempotent=True)
    await producer.wal.drain()
    producer.append(1)
    producer.append(0)
    await producer.wal.drain()
    assert [code for _, _, code in ((0, 0, one.error_code) for *_, one in producer.outcomes)] == [56, NONE, NONE]


async def test_a_later_batch_that_failed_with_the_first_does_not_let_batches_pass() -> None:
    """Both segments failed at once; the retry of the second one comes first."""
    producer, storage = await after_other_records(Storage())
    storage.plans = [(5, False)]
    producer.append(idempotent=True)
    producer.wal.flush()
    producer.append(idempotent=True)
    await producer.wal.drain()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR, 1: KAFKA_STORAGE_ERROR}
    producer.appended[0] = 1
    producer.append(idempotent=True)
    await producer.wal.drain()
    assert producer.outcomes[-1][2].error_code == KAFKA_STORAGE_ERROR


async def test_a_failure_counts_for_a_while_and_for_its_epoch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = FailedBatches()
    failures.note(TOPIC, 0, 7, 0, 10)
    assert failures.comes_too_early(TOPIC, 0, 7, 0, 11)
    assert not failures.comes_too_early(TOPIC, 0, 7, 1, 11), "a new epoch starts over"
    assert not failures.comes_too_early(TOPIC, 0, 7, 0, 9), "it came before"
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    assert not failures.comes_too_early(TOPIC, 0, 7, 0, 11)
    failures.note(TOPIC, 0, 7, 0, 0)
    assert failures.comes_too_early(TOPIC, 0, 7, 0, 1), "the log does not know the producer"
    monkeypatch.setattr(module, "FIRST_KEPT_S", -1.0)
    assert not failures.comes_too_early(TOPIC, 0, 7, 0, 1)


async def test_a_later_failure_does_not_renew_an_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that has stored the earlier batch through another proxy would wait again and again."""
    failures, now_s = FailedBatches(), 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    failures.note(TOPIC, 0, 7, 0, 0)
    now_s += module.FIRST_KEPT_S - 1
    failures.note(TOPIC, 0, 7, 0, 5)
    assert failures.comes_too_early(TOPIC, 0, 7, 0, 4)
    now_s += 2
    assert not failures.comes_too_early(TOPIC, 0, 7, 0, 4)


@given(st.integers(0, 2**31 - 1), st.integers(1, 1_000), st.integers(1, 1_000))
@settings(max_examples=50, deadline=None)
def test_sequences_wrap(first: int, count: int, further: int) -> None:
    async def run() -> None:
        failures = FailedBatches()
        later = (first + count) % 2**31
        failures.note(TOPIC, 0, 7, 0, later)
        failures.note(TOPIC, 0, 7, 0, first)
        failures.note(TOPIC, 0, 7, 0, (later + further) % 2**31)
        assert failures.comes_too_early(TOPIC, 0, 7, 0, later)
        assert not failures.comes_too_early(TOPIC, 0, 7, 0, first), "it has arrived"
        assert not failures.comes_too_early(TOPIC, 0, 7, 0, later)

    asyncio.run(run())


async def test_no_more_failures_are_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FAILURES", 2)
    failures = FailedBatches()
    for producer_id in range(3):
        failures.note(TOPIC, 0, producer_id, 0, 0)
    assert [failures.comes_too_early(TOPIC, 0, producer_id, 0, 1) for producer_id in range(3)] == [False, True, True]
    failures.note(TOPIC, 0, -1, -1, -1)
    assert failures.comes_too_early(TOPIC, 0, 1, 0, 1), "a plain producer's failure is none"


async def test_a_segment_that_lost_a_batch_and_got_an_earlier_one_notes_the_earlier_one() -> None:
    producer, storage = await after_other_records(Storage())
    storage.plans = [(0, False), (0, False)]
    producer.append(idempotent=True)
    producer.wal.flush()
    producer.append(idempotent=True)  # into the segment that is open when the first one fails
    await turns()
    assert producer.codes() == {0: KAFKA_STORAGE_ERROR, 1: KAFKA_STORAGE_ERROR}
    producer.appended[0] = 0
    producer.append(idempotent=True)
    await producer.wal.drain()
    producer.appended[0] = 1
    producer.append(idempotent=True)
    await producer.wal.drain()
    assert [one.error_code for *_, one in producer.outcomes] == 4 * [KAFKA_STORAGE_ERROR], "the first is still missing"
