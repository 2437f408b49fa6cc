"""Rejections of one partition's records before these are read, with Kafka's error codes."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_checks import check_produced
from proxy.diskless.produce_rules import rules_of
from proxy.protocol.errors import (
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from proxy.records.batches import RecordsError
from proxy.wire.produce import PartitionProduce
from tests.batches import ZSTD, make_batch

ENTRY = DisklessTopic("orders", b"o" * 16, 3, "live")
RULES = rules_of({"max.message.bytes": "1000"})
GOOD = make_batch()
IN_A_TRANSACTION = make_batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)


def check(batch: bytes | bytearray | None, *, partition: int = 0, acks: int = -1, version: int = 9):
    records = None if batch is None else memoryview(batch)
    return check_produced(ENTRY, PartitionProduce(partition, records), RULES, acks=acks, version=version)


def test_a_good_batch_is_returned_with_its_header() -> None:
    for acks in (-1, 0, 1):
        records, header = check(GOOD, partition=2, acks=acks)
        assert (bytes(records), header.length) == (bytes(GOOD), len(GOOD))
    assert check(make_batch(codec=ZSTD), version=7)[1].compression == ZSTD


@pytest.mark.parametrize(
    ("batch", "rest", "code"),
    [
        (GOOD, {"partition": 3}, UNKNOWN_TOPIC_OR_PARTITION),
        (GOOD, {"partition": -1}, UNKNOWN_TOPIC_OR_PARTITION),
        (GOOD, {"acks": 2}, INVALID_REQUIRED_ACKS),
        (None, {}, INVALID_REQUEST),
        (make_batch([b"x" * 1_000]), {}, MESSAGE_TOO_LARGE),
        (IN_A_TRANSACTION, {}, INVALID_TXN_STATE),
        (make_batch(codec=ZSTD), {"version": 6}, UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_bad_batches_are_rejected(batch: bytearray | None, rest: dict[str, int], code: int) -> None:
    with pytest.raises(RecordsError) as caught:
        check(batch, **rest)
    assert caught.value.error_code == code
