"""The behaviour of Kafka's own log cleaner that the tests of compaction rely on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from proxy.demo.stack import Stack
from proxy.records.batches import read_header
from tests.support.log_cleaner import CleanedLog, quick_cleaner

DELETE_HORIZON = 0x40


def batch(*pairs: tuple[bytes, bytes | None], codec: int = 0, sequence: int = -1) -> bytes:
    producer = (7_000_001, 0, sequence) if sequence >= 0 else (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 1 << 20)
    now_ms = int(time.time() * 1000)
    for offset, (key, value) in enumerate(pairs):
        assert builder.append(offset, now_ms, key, value, [("name", b"header")]) is not None
    return bytes(builder.build())


@pytest.fixture
def quick(stack: Stack) -> Iterator[Stack]:
    with quick_cleaner(stack):
        yield stack


def test_the_last_record_of_each_key_stays_at_its_offset(quick: Stack) -> None:
    log = CleanedLog(quick, "last")
    log.produce([batch((b"a", b"1"), (b"b", b"1"), codec=4), batch((b"a", b"2")), batch((b"c", b"1"), (b"a", b"3"))])
    assert log.clean() == 5
    kept = [(record.offset, record.key, record.value) for record in log.records() if record.offset < log.cleaned_to]
    assert kept == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    headers = [read_header(one) for one in log.batches()]
    assert [(header.compression, header.record_count) for header in headers] == [(4, 1), (0, 2), (0, 1)]


def test_a_tombstone_is_removed_in_the_run_after_its_time_and_a_producers_last_batch_stays_empty(quick: Stack) -> None:
    log = CleanedLog(quick, "tombstone", configs={"delete.retention.ms": "0"})
    log.produce([batch((b"a", b"1"), sequence=0), batch((b"a", None), sequence=1), batch((b"b", b"1"))])
    log.clean()
    first = log.batches()
    kept = [(record.offset, record.key) for record in log.records() if record.offset < log.cleaned_to]
    assert kept == [(1, b"a"), (2, b"b")]
    assert read_header(first[0]).attributes & DELETE_HORIZON
    time.sleep(0.01)
    log.clean()
    (empty, *_) = log.batches()
    header = read_header(empty)
    assert (int.from_bytes(empty[:8], "big"), header.record_count, header.base_sequence) == (1, 0, 1)
    assert [record.key for record in log.records() if record.offset < log.cleaned_to] == [b"b", b"seal-0"]
