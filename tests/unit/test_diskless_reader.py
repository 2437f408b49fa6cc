"""Reads of diskless partitions: Kafka's byte limits, right offsets, and errors that stay with their partition."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from proxy.coordinator.interface import CoordinatorUnavailable, DeleteRequest
from proxy.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from proxy.wal.segment import segment_key
from tests.batches import make_batch
from tests.support.memory_log import LARGE, TOPIC, new_log

SIZE = len(make_batch())


def offsets(read):
    data, found = b"".join(read.records), []
    while data:
        batch = DefaultRecordBatch(data[: 12 + int.from_bytes(data[8:12], "big")])
        assert batch.validate_crc()
        found += [record.offset for record in batch]
        data = data[12 + int.from_bytes(data[8:12], "big") :]
    return found


async def test_batches_come_with_their_offsets_from_the_one_asked_for():
    log = await new_log()
    await log.write([(0, make_batch([b"a", b"b"])), (0, make_batch([b"c"]))])
    await log.write([(0, make_batch([b"d"]))])
    for offset, expected in ((0, [0, 1, 2, 3]), (1, [0, 1, 2, 3]), (2, [2, 3]), (3, [3]), (4, [])):
        (read,) = await log.read((0, offset))
        assert (read.error_code, offsets(read)) == (NONE, expected)
        assert (read.log_start_offset, read.high_watermark) == (0, 4)
        assert read.size_bytes == sum(map(len, read.records))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_bytes": 3 * SIZE}, [2, 1]),
        ({"max_bytes": 2 * SIZE}, [2, 0]),
        ({"max_bytes": 2 * SIZE - 1}, [1, 0]),
        ({"max_bytes": 0}, [1, 0]),
        ({"max_bytes": 0, "first_exempt": False}, [0, 0]),
        ({"max_bytes": SIZE, "first_exempt": False}, [1, 0]),
    ],
)
async def test_limits_of_the_whole_answer(limits, expected):
    log = await new_log()
    for _ in range(2):
        await log.write([(0, make_batch()), (1, make_batch())])
    reads = await log.read((0, 0), (1, 0), **limits)
    assert [len(offsets(read)) for read in reads] == expected


@pytest.mark.parametrize(("limit", "expected"), [(0, [1, 0]), (SIZE, [1, 1]), (2 * SIZE - 1, [1, 1]), (LARGE, [3, 3])])
async def test_limits_of_each_partition(limit, expected):
    log = await new_log()
    await log.write([(partition, make_batch()) for partition in (0, 0, 0, 1, 1, 1)])
    reads = await log.read((0, 0, limit), (1, 0, limit))
    assert [len(offsets(read)) for read in reads] == expected


async def test_the_first_batch_is_that_of_the_first_partition_with_records():
    log = await new_log()
    await log.write([(1, make_batch()), (2, make_batch())])
    reads = await log.read((0, 0), (1, 0), (2, 0), max_bytes=1)
    assert [len(offsets(read)) for read in reads] == [0, 1, 0]


async def test_errors_stay_with_their_partition():
    log = await new_log(2)
    await log.write([(0, make_batch())])
    read, beyond, unknown = await log.read((0, 0), (1, 5), (7, 0))
    assert (read.error_code, offsets(read)) == (NONE, [0])
    assert (beyond.error_code, beyond.high_watermark) == (OFFSET_OUT_OF_RANGE, 0)
    assert unknown.error_code == UNKNOWN_TOPIC_OR_PARTITION


async def test_a_segment_that_is_gone_is_an_error_of_its_partitions():
    log = await new_log()
    await log.write([(0, make_batch())])
    log.storage.objects.clear()
    await log.write([(1, make_batch())])
    gone, there = await log.read((0, 0), (1, 0))
    assert (gone.error_code, gone.records) == (KAFKA_STORAGE_ERROR, [])
    assert offsets(there) == [0]


async def following(log):
    """Let the reader remember coordinates, and miss every announcement from now on."""
    task = asyncio.create_task(log.coordinates.follow())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await log.read((0, 0))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_segment_that_is_gone_has_its_records_looked_for_where_they_are_now():
    """As after a merge: the coordinates that are remembered name an object that is deleted by now."""
    log = await new_log()
    await log.write([(0, make_batch([b"a"]))])
    await following(log)
    (old,) = log.coordinator.logs[TOPIC, 0].rows
    new = b"n" * 16
    log.storage.objects = {segment_key(new): log.storage.objects[segment_key(old.segment)]}
    log.forget_bytes()
    log.coordinator.logs[TOPIC, 0].rows = [old._replace(segment=new)]
    (read,) = await log.read((0, 0))
    assert (read.error_code, offsets(read)) == (NONE, [0])


async def test_who_reads_what_was_deleted_learns_that_it_is_out_of_range():
    log = await new_log()
    await log.write([(0, make_batch([b"a"]))])
    await log.write([(0, make_batch([b"b"]))])
    await following(log)
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 1)])
    log.storage.objects.pop(segment_key(log.coordinator.unused.pop()))
    log.forget_bytes()
    (read,) = await log.read((0, 0))
    assert (read.error_code, read.log_start_offset) == (OFFSET_OUT_OF_RANGE, 1)
    (read,) = await log.read((0, 1))
    assert (read.error_code, offsets(read)) == (NONE, [1])


async def test_a_segment_that_is_needed_and_gone_is_read_no_more_often_than_its_coordinates_change():
    log = await new_log()
    await log.write([(0, make_batch([b"a"]))])
    log.storage.objects.clear()
    (read,) = await log.read((0, 0))
    assert read.error_code == KAFKA_STORAGE_ERROR
    assert log.tail.get_count + log.cold.get_count == 1


async def test_records_before_a_segment_that_is_gone_are_given():
    log = await new_log()
    await log.write([(0, make_batch())])
    kept = dict(log.storage.objects)
    await log.write([(0, make_batch())])
    log.storage.objects = kept
    (read,) = await log.read((0, 0))
    assert (read.error_code, offsets(read)) == (NONE, [0])


async def test_without_the_coordinator_every_partition_has_a_retriable_error():
    log = await new_log()

    async def down(requests):
        raise CoordinatorUnavailable("no")

    log.coordinator.find = down
    reads = await log.read((0, 0), (1, 0))
    assert [read.error_code for read in reads] == [KAFKA_STORAGE_ERROR] * 2
