"""Whole compactions, with every possible interruption: merges, produces, retention, deaths, other compactions."""

from __future__ import annotations

import asyncio
import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.compact.apply import State
from proxy.inspection.records import read_records
from proxy.records.batches import read_header
from tests.support.keyed import Keyed, Producer, foreign_header_batch, keyed_batch, last_of_each_key
from tests.support.memory_log import TOPIC
from tests.unit.pipeline.compact.simulated import DELETE_RETENTION_MS, SETTINGS, Killed, Simulated

SEEDS = st.integers(0, 2**32)


async def simulated(partitions: int = 1, *, seed: int = 0, batches: int = 0, chunk_bytes: int = 400) -> Simulated:
    made = await Simulated(partitions, seed=seed, chunk_bytes=chunk_bytes).start()
    for _ in range(batches):
        await made.produce_some()
    return made


@given(
    seed=SEEDS, partitions=st.integers(1, 3), batches=st.integers(1, 25), chunk_bytes=st.sampled_from([1, 400, 9_999])
)
@settings(max_examples=60)
def test_leaves_the_last_record_of_each_key(seed: int, partitions: int, batches: int, chunk_bytes: int) -> None:
    async def compacted() -> None:
        log = await simulated(partitions, seed=seed, batches=batches, chunk_bytes=chunk_bytes)
        applier = await log.compact()
        assert set(applier.states) <= {State.DONE}
        for partition in range(partitions):
            assert await log.records(partition) == last_of_each_key(log.written[partition])
        log.log.now_ms += DELETE_RETENTION_MS
        await log.compact()
        for partition in range(partitions):
            expected = last_of_each_key(log.written[partition], tombstones=False)
            assert await log.records(partition) == expected

    asyncio.run(compacted())


@given(
    seed=SEEDS,
    partitions=st.integers(1, 2),
    batches=st.integers(2, 20),
    target_bytes=st.sampled_from([200, 250, 300, 350]),
    chunk_bytes=st.sampled_from([400, 99_999]),
)
@settings(max_examples=60)
def test_merged_logs_are_compacted_too(
    seed: int, partitions: int, batches: int, target_bytes: int, chunk_bytes: int
) -> None:
    async def compacted() -> None:
        log = await simulated(partitions, seed=seed, batches=batches, chunk_bytes=chunk_bytes)
        await log.merge(target_bytes)
        await log.compact()
        for partition in range(partitions):
            assert await log.records(partition) == last_of_each_key(log.written[partition])

    asyncio.run(compacted())


def test_the_newest_of_a_key_is_in_an_object_before_that_of_an_older_one() -> None:
    async def compacted() -> None:
        log = await Simulated(chunk_bytes=99_999).start()
        await log.produce([Keyed(b"other", b"small")])
        await log.produce([Keyed(b"key", b"old, and too large to be merged" * 30)])
        await log.produce([Keyed(b"key", b"new, in one object with the first")])
        await log.merge(1_000)
        rows = log.log.coordinator.logs[TOPIC, 0].rows
        assert rows[0].segment == rows[2].segment != rows[1].segment
        await log.compact()
        assert [record.value for record in await log.records()] == [b"small", b"new, in one object with the first"]

    asyncio.run(compacted())


@given(seed=SEEDS)
@settings(max_examples=80)
def test_nothing_is_lost_whatever_happens_in_between(seed: int) -> None:
    async def disturbed() -> None:
        log = await simulated(2, seed=seed, batches=12)
        died = 0

        async def something() -> None:
            nonlocal died
            log.log.now_ms += log.chance.randrange(DELETE_RETENTION_MS)
            what = log.chance.randrange(8)
            if what == 0:
                await log.produce_some()
            elif what == 1:
                await log.merge_some()
            elif what == 2:
                await log.trim_some()
            elif what == 3:
                await log.compact()
            elif what == 4 and died < 5:
                died += 1
                raise Killed
            elif what == 5:
                await log.merge(log.chance.choice([200, 250, 300, 350]))
            await log.check()

        for _ in range(6):
            log.before_swap = something
            try:
                await log.compact()
            except Killed:
                pass
            await log.check()
            await log.produce_some()
        log.before_swap = None
        await log.compact()
        for partition, written in enumerate(log.written):
            start = log.log.coordinator.logs[TOPIC, partition].start
            there = await log.records(partition)
            values = [record for record in there if record.value is not None]
            wanted = last_of_each_key(written, tombstones=False)
            assert values == [record for record in wanted if record.offset >= start]

    asyncio.run(disturbed())


async def test_a_log_is_not_due_again_until_half_of_it_is_new() -> None:
    log = await simulated(batches=10)

    assert (await log.compact(force=False)).states == [State.DONE]
    assert (await log.compact(force=False)).states == []
    assert log.log.coordinator.logs[TOPIC, 0].compacted == log.log.coordinator.logs[TOPIC, 0].end


async def test_nothing_is_written_if_nothing_can_be_removed() -> None:
    log = await simulated()
    for number in range(5):
        await log.produce([Keyed(b"key-%d" % number, b"value")])
    await log.compact()
    objects = set(log.log.storage.objects)

    assert (await log.compact()).swaps == 0
    assert set(log.log.storage.objects) == objects


async def test_the_batch_of_a_producers_last_sequence_stays() -> None:
    log = await simulated()
    await log.produce([Keyed(b"a", b"1")], producer=Producer(5, 0, 0))
    await log.produce([Keyed(b"a", b"2"), Keyed(b"a", b"3")], producer=Producer(5, 0, 1))
    await log.produce([Keyed(b"a", b"4")])

    await log.compact()

    (row,) = log.log.coordinator.logs[TOPIC, 0].rows
    (obj,) = [data for key, data in log.log.storage.objects.items() if row.segment.hex() in key]
    first = read_header(obj, row.position)
    assert (first.producer_id, first.base_sequence, first.last_offset_delta, first.record_count) == (5, 1, 1, 0)
    assert await log.records() == log.written[0][-1:]


async def test_times_of_appends_stay() -> None:
    log = await simulated()
    for records in ([Keyed(b"a", b"1"), Keyed(b"b", b"1")], [Keyed(b"a", None)]):
        await log.log.write([(0, keyed_batch(records, codec=4))], log_append_time=True)
        log.log.now_ms += 7
    before = await log.records()
    assert [record.timestamp_ms for record in before] == [1_000_000, 1_000_000, 1_000_007]

    await log.compact()

    assert await log.records() == before[1:]
    (row,) = log.log.coordinator.logs[TOPIC, 0].rows
    assert (row.max_timestamp_ms, row.append_time_ms, row.log_append_time) == (1_000_007, 1_000_007, False)


@pytest.mark.parametrize("timestamp_ms", [2**63 - 9, 2**60, 2**53, 0, -1, -5_000, -(2**62)])
async def test_times_of_any_kind_are_compacted(timestamp_ms: int) -> None:
    log = await simulated(chunk_bytes=99_999)
    for records in (
        [Keyed(b"a", b"1"), Keyed(b"b", b"1")],
        [Keyed(b"a", b"2"), Keyed(b"c", None)],
        [Keyed(b"d", b"1")],
    ):
        await log.produce(records, timestamp_ms=timestamp_ms)

    for _ in range(3):
        assert (await log.compact()).states == [State.DONE]
        assert await log.records() == last_of_each_key(log.written[0])


async def test_a_batch_whose_header_lacks_a_property_of_its_records_is_compacted() -> None:
    log = await simulated()
    batch = keyed_batch([Keyed(b"a", b"1"), Keyed(b"b", b"1")], timestamp_ms=5_000)
    struct.pack_into(">q", batch, 35, 4_000)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    await log.log.write([(0, batch)])
    await log.produce([Keyed(b"a", b"2")], timestamp_ms=0)

    assert (await log.compact()).states == [State.DONE]
    assert [(record.offset, record.timestamp_ms) for record in await log.records()] == [(1, 5_001), (2, 0)]


@pytest.mark.parametrize("codec", [0, 4])
async def test_records_with_header_keys_that_are_not_utf_8_are_compacted(codec: int) -> None:
    log = await simulated()
    await log.log.write([(0, foreign_header_batch([Keyed(b"a", b"1"), Keyed(b"b", b"1")], codec=codec))])
    await log.produce([Keyed(b"a", b"2")])

    assert (await log.compact()).states == [State.DONE]

    (row,) = log.log.coordinator.logs[TOPIC, 0].rows
    (obj,) = [data for key, data in log.log.storage.objects.items() if row.segment.hex() in key]
    (left,) = read_records(memoryview(obj)[row.position :], read_header(obj, row.position))
    assert (left.offset_delta, left.key, left.headers) == (1, b"b", (("\\xff?", b"header"),))


async def test_rows_that_a_merge_has_changed_are_left_for_the_next_run() -> None:
    log = await simulated(batches=12, chunk_bytes=1)
    swapped = 0

    async def merge_after_two() -> None:
        nonlocal swapped
        swapped += 1
        if swapped == 3:
            rows = log.log.coordinator.logs[TOPIC, 0].rows
            await log.log.swap(0, len(rows) - 3, 3)

    log.before_swap = merge_after_two
    applier = await log.compact()

    assert applier.states == [State.AGAIN]
    assert "changed meanwhile" in applier.reasons[0]
    log.before_swap = None
    assert (await log.compact()).states == [State.DONE]
    assert await log.records() == last_of_each_key(log.written[0])


async def test_an_object_that_waited_for_long_is_not_used() -> None:
    """Only the time shows that it was swept and deleted, and its tombstone removed, while the driver slept."""
    log = await simulated(batches=25)

    async def sleep() -> None:
        log.before_swap = None
        log.log.now_ms += SETTINGS.garbage.orphan_age_ms // 2 + 1
        log.log.delete_unused()

    log.before_swap = sleep
    applier = await log.compact()
    assert applier.states == [State.AGAIN]
    assert "too old to be safe" in applier.reasons[0]
    await log.check()
    assert (await log.compact()).states == [State.DONE]
    await log.check()


async def test_a_tombstone_does_not_go_before_what_it_stands_for() -> None:
    log = await simulated(chunk_bytes=1)
    for record in (Keyed(b"a", b"1"), Keyed(b"b", b"1"), Keyed(b"a", None), Keyed(b"c", b"1")):
        await log.produce([record])

    async def merge_the_first() -> None:
        log.before_swap = None
        await log.log.swap(0, 0, 1)

    for _ in range(3):
        log.before_swap = merge_the_first
        assert (await log.compact()).states == [State.AGAIN]
        log.log.now_ms += DELETE_RETENTION_MS
        await log.check()


async def test_an_unreadable_row_leaves_its_log_alone() -> None:
    log = await simulated(2, batches=20, chunk_bytes=1_000)
    row = log.log.coordinator.logs[TOPIC, 0].rows[1]
    key = next(key for key in log.log.storage.objects if row.segment.hex() in key)
    log.log.storage.objects[key][-1] ^= 1
    before = list(log.log.coordinator.logs[TOPIC, 0].rows)

    applier = await log.compact()

    assert applier.states == [State.FAILED, State.DONE]
    assert log.log.coordinator.logs[TOPIC, 0].rows == before
    assert await log.records(1) == last_of_each_key(log.written[1])


async def test_a_topic_that_is_deleted_meanwhile_is_done_with() -> None:
    log = await simulated(batches=6, chunk_bytes=1)

    async def delete() -> None:
        await log.log.coordinator.delete_logs(TOPIC, [0])

    log.before_swap = delete
    assert (await log.compact()).states == [State.GONE]


async def test_objects_that_nothing_uses_are_tombstoned() -> None:
    log = await simulated(batches=8, chunk_bytes=99_999)
    before = set(log.log.storage.objects)

    async def merge() -> None:
        await log.log.swap(0, 0, len(log.log.coordinator.logs[TOPIC, 0].rows))

    log.before_swap = merge
    assert (await log.compact()).states == [State.AGAIN]
    used = {row.segment.hex() for row in log.log.coordinator.logs[TOPIC, 0].rows}
    left = {key for key in set(log.log.storage.objects) - before if key[3:] not in used}
    assert {segment.hex() for segment in log.log.coordinator.tombstones} == {key[3:] for key in left}
    assert left
