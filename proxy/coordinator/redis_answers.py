"""Answers of the coordinator on Redis that are not the store's own, and small questions about them."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.coordinator import packing
from proxy.coordinator.carrying import Refused
from proxy.coordinator.interface import OffsetAnswer, PartitionRun, RunAnswer
from proxy.coordinator.shard_calls import Reply
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED


def refused_run(run: PartitionRun, why: Refused) -> RunAnswer:
    """Return the answer for a run that is not tried."""
    error_code = THROTTLING_QUOTA_EXCEEDED if why is Refused.FULL else KAFKA_STORAGE_ERROR
    return RunAnswer(run.topic_id, run.partition, error_code, (), -1, -1)


def failed_run(run: PartitionRun) -> RunAnswer:
    """Return the answer for a run of which nobody knows what became."""
    return RunAnswer(run.topic_id, run.partition, REQUEST_TIMED_OUT, (), -1, -1)


def is_later(answer: OffsetAnswer, known: OffsetAnswer) -> bool:
    """True if the answer has a later timestamp, or is the first one with a timestamp."""
    return answer.offset >= 0 and (known.offset < 0 or answer.timestamp_ms > known.timestamp_ms)


def left_over(replies: Iterable[Reply]) -> list[bytes]:
    """Return the keys of partitions that the scripts left to the next call."""
    return [key for reply in replies for key in packing.unpack_partition_keys(reply.packed)]
