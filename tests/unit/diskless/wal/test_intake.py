"""The way into the WAL buffer: order per partition despite slow batches, and errors that stay with their batch."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Event
from typing import Any

import pytest

from proxy.diskless.produce_rules import ProduceRules, rules_of
from proxy.diskless.wal import intake as intake_module
from proxy.diskless.wal.failures import FailedBatches
from proxy.diskless.wal.intake import QUICK_BYTES, Intake
from proxy.diskless.wal.outcome import Outcome
from proxy.process.memory import MemoryBudget
from proxy.protocol.errors import INVALID_TIMESTAMP, KAFKA_STORAGE_ERROR, MESSAGE_TOO_LARGE
from proxy.protocol.errors import NONE as NO_ERROR
from proxy.records.batches import BatchHeader, RecordsError, check_batch
from proxy.records.compression import GZIP, NONE, ZSTD
from tests.batches import make_batch, make_timed_batch

TOPIC = b"t" * 16
NOW_MS = 1_700_000_000_000
LARGE = 1 << 20
PLAIN = rules_of({})
TO_ZSTD = rules_of({"compression.type": "zstd"})


class Buffer:
    """Accepts batches in place of the WAL buffer."""

    def __init__(self) -> None:
        self.kept: list[Any] | None = None
        """Callbacks of batches whose outcomes are withheld; None to settle at once."""
        self.came = asyncio.Event()
        self.appended: list[tuple[int, int, int, bool]] = []
        """(partition, value's number, codec, whether under LogAppendTime)."""
        self.failures = FailedBatches()
        self.refusals: list[tuple[bytes, int, int]] = []
        self.not_stored = self.failures.note

    def refused(self, topic_id: bytes, partition: int, producer_id: int) -> None:
        self.refusals.append((topic_id, partition, producer_id))

    def append(
        self, topic_id: bytes, partition: int, batch: memoryview, header: BatchHeader, settle, **rest: Any
    ) -> None:
        check_batch(batch, max_message_bytes=LARGE)
        self.appended.append((partition, header.base_sequence, header.compression, rest["log_append_time"]))
        if self.kept is None:
            settle(Outcome(NO_ERROR))
        else:
            self.kept.append(settle)
        self.came.set()


class Producer:
    def __init__(self, *, threads: int = 4) -> None:
        self.buffer = Buffer()
        self.memory = MemoryBudget(LARGE)
        wal: Any = self.buffer
        limits = {"max_decompressed_bytes": LARGE, "max_records": 1_000}
        self.intake = Intake(wal, self.memory, threads=threads, **limits)
        self.outcomes: dict[int, Outcome] = {}

    def append(
        self,
        number: int,
        rules: ProduceRules,
        *,
        partition: int = 0,
        codec: int = NONE,
        size: int = 10,
        topic: bytes = TOPIC,
    ) -> None:
        batch = make_batch(
            [b"x" * size], codec=codec, timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=number
        )
        self.give(number, batch, rules, partition, topic)

    def give(
        self, number: int, batch: bytearray, rules: ProduceRules, partition: int = 0, topic: bytes = TOPIC
    ) -> None:
        view = memoryview(batch)
        header = check_batch(view, max_message_bytes=LARGE)
        settle = partial(self.outcomes.__setitem__, number)
        self.intake.append(topic, partition, view, header, rules, NOW_MS, settle)


@pytest.fixture
async def producer():
    producer = Producer()
    yield producer
    await producer.intake.close()


async def test_a_batch_without_work_passes_at_once(producer: Producer) -> None:
    producer.append(0, PLAIN)
    producer.append(1, TO_ZSTD, codec=ZSTD)
    producer.append(2, rules_of({"message.timestamp.type": "LogAppendTime"}))
    assert producer.buffer.appended == [(0, 0, NONE, False), (0, 1, ZSTD, False), (0, 2, NONE, True)]


async def test_small_batches_are_worked_on_at_once(producer: Producer) -> None:
    producer.append(0, TO_ZSTD)
    producer.give(1, make_timed_batch([NOW_MS + 2 * 3_600_000]), PLAIN)
    assert producer.buffer.appended == [(0, 0, ZSTD, False)]
    assert (producer.outcomes[1].error_code, len(producer.outcomes[1].record_errors)) == (INVALID_TIMESTAMP, 1)
    assert producer.buffer.refusals == [(TOPIC, 0, -1)]


async def test_order_stays_though_one_takes_long(producer: Producer, monkeypatch) -> None:
    gate = Event()
    prepare = intake_module.prepare_batch

    def slowly(batch, header, *rest, **limits):
        if header.base_sequence == 0:
            gate.wait(30)
        return prepare(batch, header, *rest, **limits)

    monkeypatch.setattr(intake_module, "prepare_batch", slowly)
    producer.append(0, TO_ZSTD, size=2 * QUICK_BYTES)
    producer.append(1, TO_ZSTD, codec=GZIP)
    producer.append(2, TO_ZSTD)
    producer.append(3, PLAIN)
    producer.append(4, TO_ZSTD, partition=1)
    assert producer.buffer.appended == [(1, 4, ZSTD, False)], "another partition does not wait"
    assert producer.intake.waiting_batches == 4
    gate.set()
    await producer.intake.drain()
    assert producer.buffer.appended[1:] == [
        (0, 0, ZSTD, False),
        (0, 1, ZSTD, False),
        (0, 2, ZSTD, False),
        (0, 3, NONE, False),
    ]
    producer.append(5, PLAIN)
    assert producer.buffer.appended[-1] == (0, 5, NONE, False)


async def test_a_rejected_batch_fails_alone(producer: Producer) -> None:
    tight = TO_ZSTD._replace(codec=NONE, max_message_bytes=1_000)
    producer.append(0, tight, codec=GZIP, size=5_000)
    producer.append(1, tight, codec=GZIP, size=500)
    await producer.intake.drain()
    assert producer.outcomes[0].error_code == MESSAGE_TOO_LARGE
    assert "max.message.bytes" in (producer.outcomes[0].error_message or "")
    assert producer.buffer.appended == [(0, 1, NONE, False)]
    assert producer.buffer.refusals == [(TOPIC, 0, 7)]


async def test_closing_settles_every_batch(monkeypatch) -> None:
    producer = Producer()
    gate = Event()

    def slowly(*_: Any, **__: Any) -> Any:
        gate.wait(30)
        raise RecordsError(MESSAGE_TOO_LARGE, "nobody hears of it")

    monkeypatch.setattr(intake_module, "prepare_batch", slowly)
    producer.append(0, TO_ZSTD, codec=GZIP)
    producer.append(1, PLAIN)
    await producer.intake.close()
    gate.set()
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert {number: outcome.error_code for number, outcome in producer.outcomes.items()} == {
        0: KAFKA_STORAGE_ERROR,
        1: KAFKA_STORAGE_ERROR,
    }


@pytest.mark.parametrize("error", [MemoryError("x"), ValueError("x"), BaseException("as a library's panic")])
async def test_an_unexpected_error_is_one_batchs_own(producer: Producer, monkeypatch, error: BaseException) -> None:
    prepare = intake_module.prepare_batch

    def fail_first(batch, header, *rest, **limits):
        if header.base_sequence == 0:
            raise error
        return prepare(batch, header, *rest, **limits)

    monkeypatch.setattr(intake_module, "prepare_batch", fail_first)
    producer.append(0, TO_ZSTD, codec=GZIP)
    producer.append(1, PLAIN)
    async with asyncio.timeout(10):
        await producer.intake.drain()
    assert {number: one.error_code for number, one in producer.outcomes.items()} == {
        0: KAFKA_STORAGE_ERROR,
        1: NO_ERROR,
    }
    assert producer.buffer.refusals == [(TOPIC, 0, 7)]
    assert producer.buffer.failures.comes_too_early(TOPIC, 0, 7, 0, 1), "the buffer rejects it until the first arrives"


async def test_a_recompressed_batch_is_charged_until_it_is_settled(producer: Producer) -> None:
    producer.buffer.kept = []
    producer.append(0, rules_of({"compression.type": "uncompressed"}), codec=ZSTD, size=100_000)
    await producer.intake.drain()
    assert producer.memory.used_bytes > 100_000
    producer.buffer.kept[0](Outcome(NO_ERROR))
    assert (producer.memory.used_bytes, producer.outcomes[0].error_code) == (0, NO_ERROR)


async def test_above_the_memory_budget_batches_are_made_one_after_another(producer: Producer) -> None:
    producer.buffer.kept = []
    producer.memory.resize(8)
    producer.memory.take(LARGE)
    for number in range(3):
        producer.append(number, TO_ZSTD, codec=GZIP, partition=number)
    for number in range(3):
        async with asyncio.timeout(10):
            await producer.buffer.came.wait()
        producer.buffer.came.clear()
        await asyncio.sleep(0.01)
        assert len(producer.buffer.kept) == number + 1
        producer.buffer.kept[number](Outcome(NO_ERROR))
    assert producer.memory.used_bytes == LARGE


async def test_clients_that_wait_for_memory_do_not_stop_the_threads(producer: Producer) -> None:
    """The budget stays spent: memory that is given back goes to the next one of them."""
    producer.buffer.kept = []
    producer.memory.take(LARGE)
    for number in range(3):
        producer.append(number, TO_ZSTD, codec=GZIP, partition=number)
    async with asyncio.timeout(10):
        await producer.intake.drain()
    assert len(producer.buffer.kept) == 3


async def test_topics_take_turns(monkeypatch) -> None:
    producer = Producer(threads=1)
    gate = Event()
    prepare = intake_module.prepare_batch

    def slowly(*arguments, **limits):
        gate.wait(30)
        return prepare(*arguments, **limits)

    monkeypatch.setattr(intake_module, "prepare_batch", slowly)
    for number in range(5):
        producer.append(number, TO_ZSTD, codec=GZIP)
    producer.append(9, TO_ZSTD, codec=GZIP, partition=1, topic=b"u" * 16)
    gate.set()
    await producer.intake.drain()
    assert [number for _, number, _, _ in producer.buffer.appended] == [0, 1, 9, 2, 3, 4]
    await producer.intake.close()
