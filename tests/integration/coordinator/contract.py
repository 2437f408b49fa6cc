"""Batches and logs for tests of the contract that every coordinator meets."""

from __future__ import annotations

import os
import uuid

from proxy.coordinator.interface import (
    NO_PRODUCER_ID,
    BatchAnswer,
    Coordinator,
    LogDescription,
    PartitionRun,
    ProposedBatch,
)

TOPIC = uuid.UUID(int=7).bytes
OUT_OF_ORDER, INVALID_EPOCH, INVALID_RECORD = 45, 47, 87
LAST_SEQUENCE = 2**31 - 1


def plain(records: int = 1, *, length: int = 100, timestamp: int = 1_000) -> ProposedBatch:
    return ProposedBatch(length, records, timestamp, NO_PRODUCER_ID, -1, -1)


def idempotent(sequence: int, records: int = 1, *, producer_id: int = 9, epoch: int = 0) -> ProposedBatch:
    return ProposedBatch(100, records, 1_000, producer_id, epoch, sequence)


async def commit(
    coordinator: Coordinator,
    *batches: ProposedBatch,
    partition: int = 0,
    segment: bytes = b"",
    log_append_time: bool = False,
) -> tuple[BatchAnswer, ...]:
    run = PartitionRun(TOPIC, partition, 1, batches, log_append_time)
    (answer,) = await coordinator.commit(segment or os.urandom(16), [run])
    assert answer.error_code == 0
    return answer.batches


def reported(answers: tuple[BatchAnswer, ...]) -> list[tuple[int, int, bool]]:
    return [(answer.error_code, answer.base_offset, answer.duplicate) for answer in answers]


async def described(coordinator: Coordinator, partition: int = 0) -> LogDescription:
    (description,) = await coordinator.describe(TOPIC, [partition])
    assert description is not None
    return description
