"""The checks that a broker makes of one partition's records in a Produce before it appends them, as far as headers
show."""

from __future__ import annotations

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_rules import ProduceRules
from proxy.protocol.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from proxy.records.batches import CODEC_ZSTD, BatchHeader, RecordsError, check_batch
from proxy.wire.produce import PartitionProduce

_FIRST_ZSTD_VERSION = 7
_DENIED = "the client may not write to the request's transactional ID"


def check_produced(
    entry: DisklessTopic,
    partition: PartitionProduce,
    rules: ProduceRules,
    *,
    acks: int,
    version: int,
    transactional_error: int,
) -> tuple[memoryview, BatchHeader]:
    """Return the one batch for the partition, and its header. Raises RecordsError.

    `rules`: of the topic. `transactional_error`: the error of transactional batches; NONE if the client may write to
    the request's transactional ID.
    """
    if not 0 <= partition.index < entry.partitions:
        raise RecordsError(UNKNOWN_TOPIC_OR_PARTITION, f"{entry.name} has {entry.partitions} partitions")
    if acks not in (-1, 0, 1):
        raise RecordsError(INVALID_REQUIRED_ACKS, f"acks {acks} is none of -1, 0, 1")
    if partition.records is None:
        raise RecordsError(INVALID_REQUEST, "the request has no records for this partition")
    header = check_batch(partition.records, max_message_bytes=rules.max_message_bytes)
    if header.is_transactional:
        if transactional_error:
            raise RecordsError(transactional_error, _DENIED)
        if header.producer_id < 0:
            raise RecordsError(INVALID_RECORD, "a transactional batch must have a producer ID")
    if header.compression == CODEC_ZSTD and version < _FIRST_ZSTD_VERSION:
        raise RecordsError(UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or newer")
    return partition.records, header
