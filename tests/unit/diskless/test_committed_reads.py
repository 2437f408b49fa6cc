"""Reads of logs with transactions: isolation levels, control batches, and the list of aborted transactions."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from proxy.coordinator.interface import (
    LATEST_STABLE_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FindRequest,
    ListRequest,
)
from proxy.coordinator.interface_transactions import AbortedTransaction
from proxy.protocol.errors import NONE
from tests.batches import make_batch
from tests.support.memory_log import TOPIC, MemoryLog, new_log

ONE, OTHER = 11, 2**62 + 1


def transactional(*values: bytes, producer: int = ONE, sequence: int = 0, timestamp_ms: int = 1_700_000_000_000):
    return make_batch(
        values,
        transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        timestamp_ms=timestamp_ms,
    )


def batches(read) -> list[DefaultRecordBatch]:
    data, found = b"".join(read.records), []
    while data:
        length = 12 + int.from_bytes(data[8:12], "big")
        found.append(DefaultRecordBatch(data[:length]))
        assert found[-1].validate_crc()
        data = data[length:]
    return found


def bases(read) -> list[int]:
    return [batch.base_offset for batch in batches(read)]


async def interleaved() -> MemoryLog:
    """Offsets 0 plain; 1, 2 of ONE; 3 plain in the same row; 4 of OTHER, open; 5 abort of ONE; 6 of ONE."""
    log = await new_log(1)
    await log.begin(0, ONE)
    await log.begin(0, OTHER)
    first = [make_batch(), transactional(b"a", b"b"), make_batch(), transactional(b"c", producer=OTHER)]
    await log.write([(0, batch) for batch in first])
    await log.end(0, ONE, committed=False)
    await log.begin(0, ONE)
    await log.write([(0, transactional(b"d", sequence=2))])
    return log


ABORTED = AbortedTransaction(last_offset=5, first_offset=1, producer_id=ONE, last_stable_offset=4)


async def test_an_open_transaction_ends_reads_of_committed_records_within_a_row():
    log = await interleaved()
    (read,) = await log.read((0, 0), committed=True)
    assert (read.error_code, bases(read), read.more) == (NONE, [0, 1, 3], False)
    assert (read.high_watermark, read.last_stable_offset, read.aborted) == (7, 4, (ABORTED,))
    (read,) = await log.read((0, 0))
    assert (bases(read), read.last_stable_offset, read.aborted) == ([0, 1, 3, 4, 5, 6], 4, ())


@pytest.mark.parametrize("offset", [4, 5, 7])
async def test_nothing_is_committed_from_the_last_stable_offset_on(offset):
    log = await interleaved()
    (read,) = await log.read((0, offset), committed=True)
    assert (read.error_code, read.records, read.high_watermark, read.more) == (NONE, [], 7, False)


async def test_the_end_of_the_oldest_transaction_moves_the_end():
    log = await interleaved()
    await log.end(0, OTHER, committed=True)
    (read,) = await log.read((0, 0), committed=True)
    assert (bases(read), read.last_stable_offset) == ([0, 1, 3, 4, 5], 6)
    await log.end(0, ONE, committed=True)
    (read,) = await log.read((0, 4), committed=True)
    assert (bases(read), read.last_stable_offset, read.aborted) == ([4, 5, 6, 7, 8], 9, (ABORTED,))
    (read,) = await log.read((0, 6), committed=True)
    assert (bases(read), read.aborted) == ([6, 7, 8], ())


async def test_aborted_transactions_beyond_the_end_of_the_reader_are_not_listed():
    log = await interleaved()
    await log.end(0, ONE, committed=False)
    (read,) = await log.read((0, 0), committed=True)
    assert (read.high_watermark, read.last_stable_offset, read.aborted) == (8, 4, (ABORTED,))


async def test_limits_cut_reads_of_committed_records():
    log = await interleaved()
    size = len(make_batch())
    (read,) = await log.read((0, 0, size), committed=True)
    assert (bases(read), read.more) == ([0], True)
    (read,) = await log.read((0, 3, 1), committed=True)
    assert (bases(read), read.more) == ([3], False)


async def test_a_control_batch_is_a_brokers():
    log = await interleaved()
    (read,) = await log.read((0, 5, 1))
    (batch,) = batches(read)
    data = b"".join(read.records)
    assert len(data) == 78
    assert (batch.is_control_batch, batch.is_transactional, batch.producer_id) == (True, True, ONE)
    assert (batch.base_sequence, batch.producer_epoch, batch.timestamp_type) == (-1, 0, 0)
    (record,) = batch
    assert (record.key, record.value) == (bytes(4), bytes(2) + (7).to_bytes(4, "big"))
    assert (record.offset, record.timestamp) == (5, 1_700_000_000_500)


async def test_a_tail_keeps_what_find_answers():
    """The second of two reads is answered from announcements, if the first one was at the end of the log."""
    log = await new_log(1)
    following = asyncio.create_task(log.coordinates.follow())
    await asyncio.sleep(0)
    await log.read((0, 0))
    log.coordinator.find = None  # type: ignore[assignment, method-assign]
    await log.begin(0, ONE)
    await log.write([(0, transactional(b"a"))])
    await log.write([(0, make_batch())])
    await asyncio.sleep(0)
    (read,) = await log.read((0, 0), committed=True, trust_ends=True)
    assert (read.records, read.last_stable_offset, read.high_watermark) == ([], 0, 2)
    await log.end(0, ONE, committed=False)
    await asyncio.sleep(0)
    (read,) = await log.read((0, 1), committed=True)
    assert (bases(read), read.last_stable_offset) == ([1, 2], 3)
    assert [(one.first_offset, one.last_offset) for one in read.aborted] == [(0, 2)]
    following.cancel()


async def test_the_last_stable_offset_is_asked_for_unless_it_is_trusted():
    """Its announcement may be lost, as that of the log's end may be."""
    log = await new_log(1)
    following = asyncio.create_task(log.coordinates.follow())
    await asyncio.sleep(0)
    await log.read((0, 0))
    await log.begin(0, ONE)
    await log.write([(0, transactional(b"a"))])
    await asyncio.sleep(0)
    log.coordinator._listeners = []
    await log.end(0, ONE, committed=True)
    wanted = [FindRequest(TOPIC, 0, 0, 1 << 20)]
    for trusted, end in ((True, 0), (False, 2)):
        (answer,) = await log.coordinates.locate(wanted, trust_ends=trusted, committed=True)
        assert answer.last_stable_offset == end
    following.cancel()


async def test_offsets_by_isolation():
    log = await new_log(1)
    await log.write([(0, make_batch(timestamp_ms=1_000))])
    await log.begin(0, ONE)
    await log.write([(0, transactional(b"a", timestamp_ms=2_000))])
    wanted = [ListRequest(TOPIC, 0, timestamp) for timestamp in (LATEST_TIMESTAMP, 500, 1_500, MAX_TIMESTAMP)]
    stable = [ListRequest(TOPIC, 0, LATEST_STABLE_TIMESTAMP), *wanted[1:]]

    async def listed(requests: list[ListRequest], *, committed: bool) -> list[int]:
        return [one.offset for one in await log.lookup.list_offsets(requests, 10, committed=committed)]

    assert await listed(wanted, committed=False) == [2, 0, 1, 1]
    assert await listed(stable, committed=True) == [1, 0, -1, -1]
    await log.end(0, ONE, committed=True)
    assert await listed(stable, committed=True) == [3, 0, 1, 2]
    log.lookup.close()
