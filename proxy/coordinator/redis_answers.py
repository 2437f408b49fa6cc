"""Answers of the coordinator on Redis that are not the store's own, and small questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from proxy.coordinator import packing
from proxy.coordinator.carrying import Refused
from proxy.coordinator.interface import OffsetAnswer, PartitionRun, RunAnswer
from proxy.coordinator.shard_calls import Reply, merge
from proxy.coordinator.shards import split_partition_key
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED

log = structlog.get_logger()


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


def to_pack_again(keys: Sequence[bytes], replies: list[Reply]) -> list[bytes]:
    """Return the keys of partitions that have more rows to pack; report rows that were removed."""
    again = []
    for key, (more, removed) in zip(keys, merge(keys, replies, lambda one, _: packing.unpack_packed(one)), strict=True):
        if more:
            again.append(key)
        if removed:
            topic_id, partition = split_partition_key(key)
            log.error(
                "foreign_rows_removed",
                topic_id=topic_id.hex(),
                partition=partition,
                reason="the index had rows at or beyond the end of the log, and the journal has none there",
                remedy="find out what else writes to the coordinator's store, and give it a store of its own",
            )
    return again
