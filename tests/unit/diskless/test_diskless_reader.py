"""Reads of diskless partitions: Kafka's byte limits, right offsets, and errors that stay with their partition."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import structlog
from aiokafka.record.default_records import DefaultRecordBatch

from proxy.coordinator.interface import CoordinatorUnavailable, DeleteRequest
from proxy.diskless.wal.segment import segment_key
from proxy.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
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


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [(0, 2 * SIZE, True), (0, 3 * SIZE - 1, True), (0, 0, True), (0, 3 * SIZE, False), (1, 2 * SIZE, False)],
)
@pytest.mark.parametrize("segments", [1, 3])
async def test_a_read_reports_whether_its_limit_cut_the_answer(segments, offset, limit, expected):
    log = await new_log()
    for _ in range(segments):
        await log.write([(0, make_batch()) for _ in range(3 // segments)])
    (read,) = await log.read((0, offset, limit))
    assert read.more is expected
    (read,) = await log.read((0, 3, limit))
    assert read.more is False


async def test_the_first_batch_is_that_of_the_first_partition_with_records():
    log = await new_log()
    await log.write([(1, make_batch()), (2, make_batch())])
    reads = await log.read((0, 0), (1, 0), (2, 0), max_bytes=1)
    assert [len(offsets(read)) for read in reads] == [0, 1, 0]


async def test_a_reader_gets_over_a_gap_at_the_end_and_over_one_between_records():
    """`coordinator unfence` leaves such gaps; an empty batch covers 2**31 offsets."""
    log = await new_log()
    await log.write([(0, make_batch([b"a", b"b"]))])
    end = log.coordinator.logs[TOPIC, 0].end = 2 + 2**31 + 5
    position, positions = 1, []
    while position < end:
        (read,) = await log.read((0, position))
        assert (read.error_code, read.high_watermark, read.size_bytes > 0) == (NONE, end, True)
        data = b"".join(read.records)
        batch = DefaultRecordBatch(data)
        assert (batch.validate_crc(), batch.is_control_batch, batch.producer_id) == (True, False, -1)
        assert len(list(batch)) == (2 if not positions else 0)
        position = batch.next_offset
        positions.append(position)
    assert positions == [2, 2 + 2**31, end]
    (read,) = await log.read((0, end))
    assert (read.error_code, read.records, read.high_watermark) == (NONE, [], end)
    await log.write([(0, make_batch([b"c"]))])
    for offset in (2, end - 1, end):
        (read,) = await log.read((0, offset))
        assert offsets(read) == [end]


async def test_batches_that_cover_a_gap_obey_the_limits_of_batches():
    log = await new_log()
    for partition in (0, 1):
        log.coordinator.logs[TOPIC, partition].end = 5
    reads = await log.read((0, 0), (1, 0), max_bytes=0)
    assert [len(read.records) for read in reads] == [1, 0]


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
    """After a merge, cached coordinates name an object that is deleted by now."""
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


async def test_a_reader_of_deleted_records_gets_out_of_range():
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


async def test_many_reads_of_a_segment_that_is_gone_are_one_line_of_each_kind():
    log = await new_log()
    await log.write([(0, make_batch())])
    log.storage.objects.clear()
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            await log.read((0, 0))
        log.now_ms += 1_000
        await log.read((0, 0))
    events = [(line["log_level"], line["event"], line["more_like_it"]) for line in lines]
    assert events == [
        ("warning", "segment_unreadable", 0),
        ("error", "segment_missing", 0),
        ("warning", "segment_unreadable", 4),
        ("error", "segment_missing", 4),
    ]


async def test_records_before_a_segment_that_is_gone_are_given():
    log = await new_log()
    await log.write([(0, make_batch())])
    kept = dict(log.storage.objects)
    await log.write([(0, make_batch())])
    log.storage.objects = kept
    (read,) = await log.read((0, 0))
    assert (read.error_code, offsets(read), read.more) == (NONE, [0], False)


async def test_without_the_coordinator_every_partition_has_a_retriable_error():
    log = await new_log()

    async def down(requests):
        raise CoordinatorUnavailable("no")

    log.coordinator.find = down
    reads = await log.read((0, 0), (1, 0))
    assert [read.error_code for read in reads] == [KAFKA_STORAGE_ERROR] * 2


async def cold_log(segments: int = 40, partitions: int = 20):
    """Old segments, each with a batch of every partition, of which the cold cache holds about half."""
    log = await new_log(partitions)
    for _ in range(segments):
        await log.write([(partition, make_batch([b"x" * 500])) for partition in range(partitions)])
    log.now_ms += 100_000
    size = len(next(iter(log.storage.objects.values())))
    log.cold.capacity_bytes = segments // 2 * size
    log.cold._likely_bytes[LARGE // 8] = size
    return log


async def test_a_reader_of_many_partitions_reads_no_block_in_vain():
    log = await cold_log()
    positions = dict.fromkeys(range(20), 0)
    for _ in range(10):
        order = sorted(positions, key=positions.__getitem__)
        reads = await log.read(*((partition, positions[partition]) for partition in order))
        assert any(read.size_bytes for read in reads)
        for partition, read in zip(order, reads, strict=True):
            found = offsets(read)
            assert found == list(range(positions[partition], positions[partition] + len(found)))
            positions[partition] += len(found)
        if set(positions.values()) == {40}:
            break
    assert set(positions.values()) == {40}
    assert log.cold.get_count < 2 * 40


async def test_rows_are_held_for_the_answer_though_the_cache_lets_go_of_them():
    log = await cold_log(segments=6)
    read_block = log.cold._read_block

    async def push_out(key):
        entry = await read_block(key)
        asyncio.get_running_loop().call_later(0.01, log.forget_bytes)
        return entry

    log.cold._read_block = push_out
    (read,) = await log.read((0, 0))
    assert (len(offsets(read)), read.more) == (3, True)
    assert log.cold.get_count == 3


async def test_an_answer_that_has_something_does_not_wait_for_slow_blocks_but_an_empty_one_does():
    log = await cold_log(segments=4)
    log.cold.capacity_bytes = LARGE
    fetch, slow = log.storage.fetch, set(list(log.storage.objects)[1:])

    async def gated(key, start=0, end=None):
        await asyncio.sleep(0.5 if key in slow else 0)
        return await fetch(key, start, end)

    log.storage.fetch = gated
    log.reader.shortest_wait_s = 0.01
    reads = await log.read((1, 0), (2, 1), (0, 0))
    assert [offsets(read) for read in reads] == [[0], [], [0]]
    assert [(read.error_code, read.more) for read in reads] == [(NONE, True), (NONE, False), (NONE, True)]
    (read,) = await log.read((2, 1))
    assert offsets(read)[0] == 1


async def test_an_object_that_hangs_holds_up_no_partition_but_its_own():
    """The cache is empty when all of them are requested, and the one that hangs is requested first."""
    log = await new_log()
    for partition in range(3):
        await log.write([(partition, make_batch())])
    hanging = segment_key(log.coordinator.logs[TOPIC, 0].rows[0].segment)
    fetch, again = log.storage.fetch, asyncio.Event()

    async def slow(key, *arguments):
        await (again.wait() if key == hanging else asyncio.sleep(0.05))
        return await fetch(key, *arguments)

    log.storage.fetch = slow
    log.reader.shortest_wait_s = 0.001
    async with asyncio.timeout(10):
        first, *others = await log.read((0, 0), (1, 0), (2, 0))
        assert (first.error_code, first.size_bytes) == (NONE, 0)
        assert any(read.size_bytes for read in others)
        again.set()
        assert [read.size_bytes > 0 for read in await log.read((0, 0), (1, 0), (2, 0))] == [True] * 3
