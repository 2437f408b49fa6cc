"""ListOffsets by time, compared with a plain list of records, also while rows are moved and deleted."""

from __future__ import annotations

import asyncio
import threading
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.coordinator.interface import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    CoordinatorUnavailable,
    DeleteRequest,
    ListRequest,
    OffsetAnswer,
)
from proxy.diskless import record_times, time_lookup
from proxy.diskless.wal.segment import segment_key
from proxy.protocol.errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION
from tests.batches import ENCODE, GZIP, LZ4, SNAPPY, ZSTD, make_batch, make_timed_batch
from tests.support.memory_log import MOST_ROWS, TOPIC, MemoryLog, new_log

LONG_S = 30.0
NOTHING = OffsetAnswer(0, -1, -1)

timestamps = st.lists(st.integers(0, 12), min_size=1, max_size=5)
batches = st.lists(st.tuples(st.sampled_from([0, GZIP, SNAPPY, LZ4, ZSTD]), timestamps), min_size=1, max_size=3)
segments = st.tuples(batches, st.one_of(st.none(), st.integers(0, 12)))
"""Batches, and the time of their append where all their records get that."""


async def ask(log: MemoryLog, *wanted: int, partition: int = 0, timeout_s: float = LONG_S) -> list[OffsetAnswer]:
    return await log.lookup.list_offsets([ListRequest(TOPIC, partition, one) for one in wanted], timeout_s)


def expected(records: list[int], start: int, wanted: int) -> OffsetAnswer:
    """Return the answer from a list of timestamps, one for each offset."""
    if wanted == EARLIEST_TIMESTAMP:
        return OffsetAnswer(0, start, -1)
    if wanted == LATEST_TIMESTAMP:
        return OffsetAnswer(0, len(records), -1)
    there = records[start:]
    if wanted == MAX_TIMESTAMP:
        wanted = max(there, default=0)
    for offset, timestamp_ms in enumerate(there, start):
        if timestamp_ms >= wanted:
            return OffsetAnswer(0, offset, timestamp_ms)
    return NOTHING


@settings(deadline=None)
@given(written=st.lists(segments, max_size=5), deleted=st.integers(0, 30))
async def test_every_time_is_found_as_a_list_of_records_has_it(written, deleted):
    log = await new_log(1)
    records: list[int] = []
    for made, append_time in written:
        log.now_ms = append_time or 0
        segment = [(0, make_timed_batch(times, codec=codec)) for codec, times in made]
        await log.write(segment, log_append_time=append_time is not None)
        records += [one if append_time is None else append_time for _, times in made for one in times]
    start = min(deleted, len(records))
    await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, start)])
    wanted = [EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, *range(14)]
    assert await ask(log, *wanted) == [expected(records, start, one) for one in wanted]


async def test_partitions_are_answered_in_order_and_fail_alone():
    log = await new_log(2)
    await log.write([(0, make_timed_batch([5, 7])), (1, make_timed_batch([6]))])
    await log.write([(0, make_timed_batch([9]))])
    log.storage.objects.pop(segment_key(log.coordinator.logs[TOPIC, 0].rows[0].segment))
    requests = [ListRequest(TOPIC, *one) for one in ((1, 1), (0, 8), (7, 8), (0, 6), (0, -1), (1, -3))]
    assert await log.lookup.list_offsets(requests, LONG_S) == [
        OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1),
        OffsetAnswer(0, 2, 9),
        OffsetAnswer(UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1),
        OffsetAnswer(0, 3, -1),
        OffsetAnswer(KAFKA_STORAGE_ERROR, -1, -1),
    ]


async def test_a_row_that_is_moved_meanwhile_is_found_where_it_is():
    log = await new_log(1)
    await log.write([(0, make_timed_batch([5, 7]))])
    find = log.coordinator.find

    async def find_and_move(requests):
        answers = await find(requests)
        log.coordinator.find = find
        (old,) = log.coordinator.logs[TOPIC, 0].rows
        log.coordinator.logs[TOPIC, 0].rows = [old._replace(segment=b"n" * 16)]
        log.storage.objects = {segment_key(b"n" * 16): log.storage.objects[segment_key(old.segment)]}
        return answers

    log.coordinator.find = find_and_move
    assert await ask(log, 6) == [OffsetAnswer(0, 1, 7)]


@pytest.mark.parametrize(("wanted", "answer"), [(5, OffsetAnswer(0, 1, 7)), (MAX_TIMESTAMP, OffsetAnswer(0, 1, 7))])
async def test_a_row_that_is_deleted_meanwhile_is_not_answered(wanted, answer):
    log = await new_log(1)
    for time in (9, 7):
        await log.write([(0, make_timed_batch([time]))])
    list_offsets = log.coordinator.list_offsets

    async def list_and_delete(requests):
        answers = await list_offsets(requests)
        log.coordinator.list_offsets = list_offsets
        await log.coordinator.delete_records([DeleteRequest(TOPIC, 0, 1)])
        return answers

    log.coordinator.list_offsets = list_and_delete
    assert await ask(log, wanted) == [answer]


async def test_a_lookup_that_takes_too_long_fails_alone():
    log = await new_log(2)
    await log.write([(0, make_timed_batch([5]))])

    async def never(*_):
        await asyncio.Event().wait()

    log.storage.fetch = never
    answers = await ask(log, LATEST_TIMESTAMP, 5, 6, timeout_s=0.05)
    assert answers == [OffsetAnswer(0, 1, -1), OffsetAnswer(REQUEST_TIMED_OUT, -1, -1), NOTHING]


async def test_rows_are_read_no_more_at_a_time_than_is_allowed():
    log = await new_log(8)
    for partition in range(8):
        await log.write([(partition, make_timed_batch([5]))])
    fetch, under_way, most = log.storage.fetch, 0, 0

    async def counted(*arguments):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return await fetch(*arguments)

    log.storage.fetch = counted
    answers = await log.lookup.list_offsets([ListRequest(TOPIC, partition, 1) for partition in range(8)], LONG_S)
    assert (answers, most) == ([OffsetAnswer(0, 0, 5)] * 8, MOST_ROWS)


async def test_without_the_coordinator_there_is_no_answer():
    log = await new_log(1)

    async def down(_):
        raise CoordinatorUnavailable("no")

    log.coordinator.list_offsets = down
    with pytest.raises(CoordinatorUnavailable):
        await ask(log, 1)


async def test_batches_of_any_size_are_searched():
    log = await new_log(1)
    await log.write([(0, make_batch([b"x" * 100] * 2_000, timestamp_ms=0))])
    await log.write([(0, make_batch([b"x"] * 10, timestamp_ms=1_000))])
    assert await ask(log, 1_234, 1_999, 2_000, MAX_TIMESTAMP) == [
        OffsetAnswer(0, 1_234, 1_234),
        OffsetAnswer(0, 1_999, 1_999),
        NOTHING,
        OffsetAnswer(0, 1_999, 1_999),
    ]


async def test_a_search_that_nobody_waits_for_ends_and_keeps_its_turn_until_then(monkeypatch):
    log = await new_log(1)
    await log.write([(0, make_batch([b"x" * 100] * 100, timestamp_ms=0))])
    gave_up, may_end, searches = threading.Event(), threading.Event(), []
    submit = log.lookup._threads.submit

    def noted(search):
        searches.append(search)
        return submit(search)

    def slow(*_, stopped, **__):
        while not stopped() and not gave_up.is_set():
            sleep(0.001)
        gave_up.set()
        may_end.wait()

    monkeypatch.setattr(log.lookup._threads, "submit", noted)
    monkeypatch.setattr(time_lookup, "first_since", slow)
    try:
        for _ in range(8):
            assert await ask(log, 5, timeout_s=0.02) == [OffsetAnswer(REQUEST_TIMED_OUT, -1, -1)]
        assert len(searches) <= MOST_ROWS, "one that has not ended keeps its turn"
        assert await asyncio.to_thread(gave_up.wait, 10)
    finally:
        gave_up.set()
        may_end.set()
    monkeypatch.undo()
    assert await ask(log, 5) == [OffsetAnswer(0, 5, 5)]
    log.lookup.close()


async def test_a_small_batch_that_becomes_large_does_not_stop_the_loop(monkeypatch):
    """A hundred bytes may hold more records than a second is enough for."""
    count = 100_000
    packed = ENCODE[ZSTD]((b"\x0c" + bytes(6)) * count)
    batch = make_timed_batch([0], codec=ZSTD, claimed_ms=99, payload=packed, count=count)
    assert len(batch) < time_lookup._INLINE_BYTES
    log = await new_log(1)
    await log.write([(0, batch)])
    searched_in: list[int] = []
    first_since = time_lookup.first_since

    def noted(*arguments, **options):
        searched_in.append(threading.get_ident())
        return first_since(*arguments, **options)

    monkeypatch.setattr(time_lookup, "first_since", noted)
    assert await ask(log, 50) == [NOTHING]
    assert searched_in != [threading.get_ident()]
    monkeypatch.setattr(record_times, "MAX_RECORDS", count - 1)
    assert await ask(log, 50) == [OffsetAnswer(0, 0, 99)], "too many to be searched: the batch as a whole"
