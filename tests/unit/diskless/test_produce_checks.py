"""Rejections of one partition's records before these are read, with Kafka's error codes."""

from __future__ import annotations

import pytest

from proxy.coordinator.interface_registry import DisklessTopic
from proxy.diskless.produce_checks import check_produced
from proxy.diskless.produce_rules import rules_of
from proxy.protocol.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    MESSAGE_TOO_LARGE,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from proxy.records.batches import RecordsError
from proxy.wire.produce import PartitionProduce
from tests.batches import ZSTD, make_batch

ENTRY = DisklessTopic("orders", b"o" * 16, 3, "live")
RULES = rules_of({"max.message.bytes": "1000"})
GOOD = make_batch()
DENIED = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
IN_A_TRANSACTION = make_batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)


def check(batch: bytes | bytearray | None, *, partition: int = 0, transactional_error: int = NONE, **rest: int):
    records = None if batch is None else memoryview(batch)
    asked = {"acks": -1, "version": 9, "transactional_error": transactional_error} | rest
    return check_produced(ENTRY, PartitionProduce(partition, records), RULES, **asked)


def test_a_good_batch_is_returned_with_its_header() -> None:
    for acks in (-1, 0, 1):
        records, header = check(GOOD, partition=2, acks=acks)
        assert (bytes(records), header.length) == (bytes(GOOD), len(GOOD))
    assert check(make_batch(codec=ZSTD), version=7)[1].compression == ZSTD
    assert check(IN_A_TRANSACTION)[1].is_transactional
    assert check(GOOD, transactional_error=DENIED)[1].length == len(GOOD)


@pytest.mark.parametrize(
    ("batch", "rest", "code"),
    [
        (GOOD, {"partition": 3}, UNKNOWN_TOPIC_OR_PARTITION),
        (GOOD, {"partition": -1}, UNKNOWN_TOPIC_OR_PARTITION),
        (GOOD, {"acks": 2}, INVALID_REQUIRED_ACKS),
        (None, {}, INVALID_REQUEST),
        (make_batch([b"x" * 1_000]), {}, MESSAGE_TOO_LARGE),
        (IN_A_TRANSACTION, {"transactional_error": DENIED}, DENIED),
        (make_batch(transactional=True), {}, INVALID_RECORD),
        (make_batch(codec=ZSTD), {"version": 6}, UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_bad_batches_are_rejected(batch: bytearray | None, rest: dict[str, int], code: int) -> None:
    with pytest.raises(RecordsError) as caught:
        check(batch, **rest)
    assert caught.value.error_code == code
